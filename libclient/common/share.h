// share.h: how the ranks of a node share out elements that have to be combined, or copied, once for all.
// Every rank computes every other rank's share, so no message is needed.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hdt::client {

// Elements [first, first + count). `count` may be 0.
struct Share {
  uint64_t first;
  uint64_t count;
};

// The share of rank `local` of `ranks`. Shares have equal sizes, a multiple of kUnit elements, except
// that the last ones are shorter or empty. The unit is at least one cache line of every type, so that
// ranks do not write to the same lines.
constexpr Share share_of(uint64_t elements, uint32_t ranks, uint32_t local) {
  constexpr uint64_t kUnit = 64;
  // The quotient, rounded up twice: to whole elements, and to whole units.
  const uint64_t size = ((elements + ranks - 1) / ranks + kUnit - 1) / kUnit * kUnit;
  const uint64_t first = std::min(elements, local * size);
  return {first, std::min(size, elements - first)};
}

}  // namespace hdt::client
