// region.h: registered memory between two fences, for parsers that place what they are told to.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "tests/fuzz/target.h"
#include "transports/support/region_table.h"

namespace hdt::fuzz {

class Region {
 public:
  static constexpr uint64_t kKey = 7;
  static constexpr size_t kBytes = 16 << 10;

  Region() { table_.add(kKey, memory_.data() + kFence, kBytes); }
  std::byte* locate(uint64_t key, uint64_t offset, size_t bytes) {
    std::byte* const place = table_.locate(key, offset, bytes);
    if (place != nullptr) HDT_HOLDS(key == kKey && holds({place, bytes}));
    return place;
  }
  bool holds(std::span<const std::byte> placed) const {
    if (placed.empty()) return true;
    const std::byte* const begin = memory_.data() + kFence;
    return placed.data() >= begin && placed.size() <= kBytes &&
           static_cast<size_t>(placed.data() - begin) <= kBytes - placed.size();
  }
  std::span<const std::byte> content() const { return std::span(memory_).subspan(kFence, kBytes); }
  // Nothing was written beside it.
  void check() const {
    for (size_t i = 0; i < kFence; ++i)
      HDT_HOLDS(memory_[i] == std::byte{0} && memory_[kFence + kBytes + i] == std::byte{0});
  }

 private:
  static constexpr size_t kFence = 64;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes + 2 * kFence);
  transport::RegionTable table_;
};

}  // namespace hdt::fuzz
