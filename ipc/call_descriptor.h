// call_descriptor.h: the call descriptor (`CallDescriptor`), by which the ranks of a group of one node tell
// each other of a call. Each rank writes one for each call. It holds what the rank calls, and either the
// rank's contribution or the place where it can be found. A small operation is one descriptor from each rank
// and nothing else: a rank that has seen the descriptors of all ranks can compute the result.
//
// Descriptor s of a rank lies at place s % kDescriptors, and its payload at s % kPayloads. A rank may write
// it when every rank has finished call s - kDescriptors (and s - kPayloads, if it has a payload). `sequence`
// is stored last, with release: a reader that loads it with acquire and finds s + 1 sees the rest of
// descriptor s.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/call.h"

namespace hdt::ipc {

// Calls that a rank may be ahead of the slowest rank of its node.
inline constexpr uint64_t kDescriptors = 16;
// There are fewer payloads than descriptors, as they are 64 KiB each.
inline constexpr uint64_t kPayloads = 4;
// The largest contribution that is copied into a payload, in bytes.
inline constexpr uint64_t kEagerBytes = uint64_t{64} << 10;
// Size of a descriptor in bytes. A small contribution lies in the same cache lines as the rest, since
// adjacent lines arrive together.
inline constexpr size_t kDescriptorBytes = 384;

// The largest contribution that fits into the descriptor itself: 352 bytes.
inline constexpr size_t kInlineBytes = kDescriptorBytes - 2 * sizeof(uint64_t) - sizeof(Call);

// The descriptor of one call of one rank. Written by that rank only; read by all ranks of the node.
struct alignas(128) CallDescriptor {
  // s + 1: this is descriptor s. 0: nothing was written here yet.
  std::atomic<uint64_t> sequence{0};
  // How many of the calls before this one the rank had not finished when it wrote this. A rank that waits for
  // a free place thus learns it from a cache line that it reads anyway.
  uint32_t unfinished = 0;
  // The content is an Exposure, and 1: the contribution was copied into the payload as well, so nobody needs
  // the sendbuf.
  uint8_t copied = 0;
  // Set by the node's first rank, on behalf of all: if not all buffers are shared, the call goes through the
  // kernel, provided that all ranks may do so (libclient/intranode/protocol_tuner.h). The other ranks leave
  // it 0.
  uint8_t by_kernel = 0;
  uint16_t reserved = 0;
  Call call;
  // The contribution, if it has at most kInlineBytes; otherwise an Exposure.
  alignas(8) std::byte content[kInlineBytes] = {};
};
static_assert(sizeof(CallDescriptor) == kDescriptorBytes);
// All of a call without its contribution is one cache line: a second one took 100 ns from core to core, a
// quarter of a small call.
static_assert(offsetof(CallDescriptor, content) + sizeof(Exposure) <= 64);

// Bytes of one rank's descriptors and payloads in the segment.
inline constexpr uint64_t kDescriptorAreaBytes =
    kDescriptors * sizeof(CallDescriptor) + kPayloads * kEagerBytes;

}  // namespace hdt::ipc
