// values.cc: makes elements from keys, and compares sums.
#include "tools/soak_parts/values.h"

#include <bit>
#include <cstring>

namespace hdt::soak {

namespace {

// Elements that are made and compared at once; they fit the stack and the cache.
constexpr size_t kBlock = 4096;

// Elements are so small that sums of 16 ranks stay below 2^16, and below 2^8 for bfloat16, whose numbers
// have 8 significant bits.
uint32_t mask_of(hdtDataType_t type) { return type == HDT_BFLOAT16 ? 0xf : 0xfff; }

// A hash of key and index; the masks keep the small values that the types can add exactly.
uint32_t element(uint64_t key, size_t index, uint32_t mask) {
  const auto low = static_cast<uint32_t>(key) + static_cast<uint32_t>(index) * 0x9e3779b9U;
  return (low ^ static_cast<uint32_t>(key >> 32)) >> 13 & mask;
}

template <typename T>
void convert(const uint32_t* numbers, size_t count, void* place) {
  for (size_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(numbers[i]);
    std::memcpy(static_cast<char*>(place) + i * sizeof(T), &value, sizeof value);
  }
}

// The values have at most 8 significant bits, so cutting the lower half of the float loses nothing.
void convert_bfloat16(const uint32_t* numbers, size_t count, void* place) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(numbers[i])) >> 16);
    std::memcpy(static_cast<char*>(place) + i * sizeof value, &value, sizeof value);
  }
}

// Converts to the type of the call.
void write(hdtDataType_t type, const uint32_t* numbers, size_t count, void* place) {
  if (type == HDT_BFLOAT16) return convert_bfloat16(numbers, count, place);
  if (type == HDT_FLOAT64) return convert<double>(numbers, count, place);
  if (type == HDT_INT32) return convert<int32_t>(numbers, count, place);
  convert<float>(numbers, count, place);
}

}  // namespace

// Mixes in one part after the other, with the constants of SplitMix64.
uint64_t key_of(uint64_t seed, uint64_t group, uint64_t operation, uint64_t rank) {
  uint64_t key = seed;
  for (const uint64_t part : {group, operation, rank}) {
    key = (key ^ part) + 0x9e3779b97f4a7c15U;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9U;
    key ^= key >> 31;
  }
  return key;
}

void fill(void* place, hdtDataType_t type, size_t count, uint64_t key) {
  uint32_t numbers[kBlock];
  const uint32_t mask = mask_of(type);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = count - begin < kBlock ? count - begin : kBlock;
    for (size_t i = 0; i < length; ++i) numbers[i] = element(key, begin + i, mask);
    write(type, numbers, length, static_cast<char*>(place) + begin * hdtTypeSize(type));
  }
}

// The expected elements are made in the call's own type and compared as bytes: what is right is right in
// all bits.
bool is_sum(const void* place, hdtDataType_t type, size_t first, size_t count,
            const std::vector<uint64_t>& keys) {
  uint32_t numbers[kBlock];
  char expected[kBlock * sizeof(double)];
  const uint32_t mask = mask_of(type);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = count - begin < kBlock ? count - begin : kBlock;
    std::memset(numbers, 0, sizeof numbers);
    for (const uint64_t key : keys) {
      for (size_t i = 0; i < length; ++i) numbers[i] += element(key, first + begin + i, mask);
    }
    write(type, numbers, length, expected);
    const size_t bytes = length * hdtTypeSize(type);
    if (std::memcmp(static_cast<const char*>(place) + begin * hdtTypeSize(type), expected, bytes) != 0)
      return false;
  }
  return true;
}

}  // namespace hdt::soak
