// buffers.h: what the ranks of hdt-bench-rails exchange, and how they say what went wrong.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "hdt/hdt.h"

namespace hdt::rails {

// Prints the error if there is one.
inline bool succeeded(hdtResult_t result, const char* what) {
  if (result == HDT_SUCCESS) return true;
  std::fprintf(stderr, "hdt-bench-rails: %s: %s\n", what, hdtGetLastError());
  return false;
}

// This rank's data, and where the result goes.
struct Buffers {
  std::span<float> mine, result;
};

// Two buffers of `count` elements in memory of hdtMemAlloc, which is never freed. Ends the process if
// there is no memory.
inline Buffers shared_buffers(size_t count) {
  void* memory = nullptr;
  if (!succeeded(hdtMemAlloc(&memory, 2 * count * sizeof(float)), "hdtMemAlloc")) std::exit(1);
  const std::span<float> both(static_cast<float*>(memory), 2 * count);
  return {both.first(count), both.last(count)};
}

// Small whole numbers: their sums are exact, so results can be compared bit for bit. The first element
// says whether this rank wants to end.
inline void fill(std::span<float> data, long call, int rank, bool last) {
  uint32_t value = static_cast<uint32_t>(call) * 2654435761U + static_cast<uint32_t>(rank) * 40503U;
  for (float& element : data) {
    element = static_cast<float>(value >> 12 & 0xfff);
    value += 0x9e3779b9U;
  }
  data.front() = last ? 1.0F : 0.0F;
}

// Compares all elements but the first.
inline bool matches(std::span<const float> result, std::span<const float> expected) {
  return std::memcmp(result.data() + 1, expected.data() + 1, (expected.size() - 1) * sizeof(float)) == 0;
}

// One exchange: `mine` goes to the peer, and the peer's data into `result`. begin() returns at once, and
// wait() when both are complete.
class SendRecv {
 public:
  bool begin(const Buffers& buffers, int peer, hdtComm_t group) {
    return succeeded(hdtSend(buffers.mine.data(), buffers.mine.size(), HDT_FLOAT32, peer, group, &sending_),
                     "hdtSend") &&
           succeeded(
               hdtRecv(buffers.result.data(), buffers.result.size(), HDT_FLOAT32, peer, group, &receiving_),
               "hdtRecv");
  }
  bool wait() {
    return succeeded(hdtWait(&sending_, -1), "hdtWait") && succeeded(hdtWait(&receiving_, -1), "hdtWait");
  }

 private:
  // Null when no exchange is under way.
  hdtRequest_t sending_ = nullptr, receiving_ = nullptr;
};

}  // namespace hdt::rails
