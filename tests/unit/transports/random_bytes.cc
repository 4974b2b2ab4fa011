// random_bytes.cc: splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014),
// whose code is in this file alone: a standard engine's is shared with files that sanitizers see.
#include "tests/unit/transports/random_bytes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>

namespace hdt::transport {

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    seed += 0x9E3779B97F4A7C15;
    uint64_t word = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    word ^= word >> 31;
    std::memcpy(data.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return data;
}

bool same_bytes(const std::vector<std::byte>& one, const std::vector<std::byte>& other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

uint64_t seed_of_run() {
  const char* given = std::getenv("HDT_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "seed " << seed << " (HDT_TEST_SEED)\n";
  return seed;
}

}  // namespace hdt::transport
