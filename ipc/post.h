// post.h: how the ranks of a group of one node tell each other of a call: one post per rank and call, which
// says what the rank calls and holds, or says where to find, what it contributes. A small operation is one
// post per rank and nothing else: whoever has everyone's post has all it needs.
//
// Post s of a rank lies at s % kPosts, its payload at s % kPayloads. It may be written when every rank has
// finished call s - kPosts (and s - kPayloads, if it has a payload). `sequence` is stored last, with release.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/call.h"

namespace hdt::session {

inline constexpr uint64_t kPosts = 16;
inline constexpr uint64_t kPayloads = 4;
// Largest contribution that is copied into a payload.
inline constexpr uint64_t kEagerBytes = uint64_t{64} << 10;
// Small contributions lie beside the rest: lines that follow one another arrive together.
inline constexpr size_t kPostBytes = 384;

inline constexpr size_t kInlineBytes = kPostBytes - 2 * sizeof(uint64_t) - sizeof(Call);

struct alignas(128) Post {
  std::atomic<uint64_t> sequence{0};  // s + 1: this is post s
  uint64_t finished = 0;              // calls the rank had finished when it wrote this
  Call call;
  alignas(8) std::byte content[kInlineBytes] = {};  // the contribution if it fits; else an Exposure
};
static_assert(sizeof(Post) == kPostBytes);
static_assert(sizeof(Exposure) <= kInlineBytes);

inline constexpr uint64_t kPostingBytes = kPosts * sizeof(Post) + kPayloads * kEagerBytes;  // of one rank

}  // namespace hdt::session
