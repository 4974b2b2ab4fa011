// keyed_permutation.h: a pseudo-random permutation of 0 .. size - 1 that needs no table.
#pragma once

#include <cstdint>

namespace hdt::training {

// A well mixed function of its input: the finaliser of SplitMix64 (Steele, Lea and Flood 2014: "Fast
// splittable pseudorandom number generators"). A bijection.
uint64_t mix_bits(uint64_t value);

// A Feistel network is a permutation of all numbers of 2 * half_bits bits, whatever its round function.
// If the range is no power of four, a result outside of it is put in again until one is inside ("cycle
// walking", Black and Rogaway 2002: "Ciphers with arbitrary finite domains"). That is still a
// permutation, of the range. The power is below 4 * size, so it takes under 4 turns on average. Not
// cryptographic. Const, so any thread may use it.
class KeyedPermutation {
 public:
  // Permutes 0 .. size - 1; size > 0. Different keys give unrelated permutations.
  KeyedPermutation(uint64_t key, uint64_t size);
  // Where `position` goes; position < size.
  uint64_t operator()(uint64_t position) const;

 private:
  // One pass through the network, on 2 * half_bits_ bits.
  uint64_t encrypt(uint64_t value) const;

  uint64_t key_;
  uint64_t size_;
  int half_bits_;
};

}  // namespace hdt::training
