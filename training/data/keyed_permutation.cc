// keyed_permutation.cc: an eight-round Feistel network with cycle walking. The constants are part of the
// data format of runs: a test pins the values, because other values would change the data of a run that
// is resumed.
#include "training/data/keyed_permutation.h"

#include <algorithm>
#include <bit>

namespace hdt::training {
namespace {

constexpr int kRounds = 8;                             // small halves mix little in a round
constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio, odd (SplitMix64)

}  // namespace

uint64_t mix_bits(uint64_t value) {
  value += kGoldenGamma;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Half of the bits of size - 1, rounded up: the next even number of bits.
KeyedPermutation::KeyedPermutation(uint64_t key, uint64_t size)
    : key_(key), size_(size), half_bits_(std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2)) {}

uint64_t KeyedPermutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t round_key = mix_bits(key_ + static_cast<uint64_t>(round) * kGoldenGamma);
    const uint64_t next = left ^ (mix_bits(round_key ^ right) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t KeyedPermutation::operator()(uint64_t position) const {
  // The loop ends: `position` is inside, and the cycle on which it lies comes back to it.
  uint64_t value = encrypt(position);
  while (value >= size_) value = encrypt(value);
  return value;
}

}  // namespace hdt::training
