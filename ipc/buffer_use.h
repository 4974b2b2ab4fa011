// buffer_use.h: what becomes of a rank's two buffers in one collective call. A rank and its daemon compute it
// independently, from the same call, and must come to the same result: if they differed, one of them would
// wait for data that the other one never puts there. So a change here needs a new kSegmentVersion, and as
// the nodes of a group rely on may_be_direct(), a new kPeerVersion.
//
// In a group of several nodes, a rank that is alone on its node may have its buffers used in place: its
// daemon reads and writes them itself. Everything else goes through the node's slots (segment.h), chunk by
// chunk.
#pragma once

#include <cstdint>

#include "ipc/call.h"
#include "ipc/segment.h"

namespace hdt::ipc {

// Whether the call reads the sendbuf, or writes the recvbuf, of that rank of the group. `rank` is below the
// number of ranks.
bool reads_sendbuf(const Call& call, uint32_t rank);
bool writes_recvbuf(const Call& call, uint32_t rank);

// The sizes of that rank's two buffers as the call uses them; 0: not at all. The group has `ranks` ranks.
struct BufferSizes {
  uint64_t send = 0;
  uint64_t recv = 0;
};
BufferSizes buffer_sizes(const Call& call, uint32_t ranks, uint32_t rank);

// Whether nodes may use buffers of the call in place. If so, all nodes send each other where their output
// is before anything is written. The result is the same on all nodes, as it depends on the call and the
// layout's nodes and ranks only.
bool may_be_direct(const Call& call, const Layout& layout);

enum class BufferUse : uint8_t {
  // Neither the rank nor the daemon touches it.
  kUnused,
  // The sendbuf: the rank copies it into the slots.
  kStaged,
  // The recvbuf: the rank copies the result out of the slots.
  kCopiedOut,
  // The daemon reads the sendbuf, or writes the recvbuf, itself.
  kInPlace,
  // The sendbuf: the rank copies it to its place in its own recvbuf, past the slots.
  kOwnCopy
};

// The facts that are known of a rank's buffers.
struct BufferFacts {
  // The buffer lies in memory of hdtMemAlloc that the rank shares with its daemon.
  bool send_shared = false;
  bool recv_shared = false;
  // The rank's contribution is at its place in its recvbuf already ("in place" in hdt.h). A daemon cannot
  // know that and says false: no answer that it uses depends on it.
  bool at_its_place = false;
};

struct CallBuffers {
  BufferUse send = BufferUse::kUnused;
  BufferUse recv = BufferUse::kUnused;
  bool operator==(const CallBuffers&) const = default;

  // The engine finds the rank's data outside of the slots: in the sendbuf, or, where the call does not take
  // it from there, in the recvbuf. Otherwise the rank counts each chunk as copied in, also one to which it
  // contributes nothing.
  bool source_in_place() const {
    return send == BufferUse::kInPlace || (send != BufferUse::kStaged && recv == BufferUse::kInPlace);
  }
  // Slots hold something of the rank's, so that it must count each chunk as copied out. Otherwise slots are
  // free as soon as a chunk is exchanged.
  bool holds_slots() const { return !source_in_place() || recv == BufferUse::kCopiedOut; }
};

// The use of a rank's buffers in a call of a group of several nodes. With both buffers shared, it tells which
// of them have to be looked for in shared memory at all.
CallBuffers buffer_use(const Call& call, const Layout& layout, uint32_t rank, const BufferFacts& facts);

}  // namespace hdt::ipc
