// share.h: how the ranks of a node share out elements that each needs to be combined, or copied, once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hdt::client {

// Elements [first, first + count).
struct Share {
  uint64_t first;
  uint64_t count;
};

// That of rank `local` of `ranks`: equal ones, at multiples of an amount that keeps ranks out of each other's
// cache lines.
constexpr Share share_of(uint64_t elements, uint32_t ranks, uint32_t local) {
  constexpr uint64_t kUnit = 64;
  const uint64_t size = ((elements + ranks - 1) / ranks + kUnit - 1) / kUnit * kUnit;
  const uint64_t first = std::min(elements, local * size);
  return {first, std::min(size, elements - first)};
}

}  // namespace hdt::client
