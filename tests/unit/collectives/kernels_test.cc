// kernels_test.cc: reduce and copy_divided on random data against plain C++: all types, ops, numbers of
// sources, counts and misalignments, on every SIMD target of this CPU.
#include "collectives/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/collectives/kernels_fixture.h"
#include "tests/unit/collectives/scalar_reference.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kSeed = 7;
constexpr size_t kCounts[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100, 257};
constexpr std::byte kGuard{0xC3};

// Random elements at an odd address if misaligned, all bit patterns but (for min and max) NaN and zeros,
// whose choice is free.
class Data {
 public:
  Data(DataType type, ReduceOp op, size_t count, size_t shift, std::mt19937_64& random)
      : bytes_(count * type_size(type) + shift), shift_(shift) {
    for (std::byte& b : bytes_) b = static_cast<std::byte>(random());
    if (op != ReduceOp::kMin && op != ReduceOp::kMax) return;
    const size_t size = type_size(type);
    for (size_t i = 0; i < count; ++i) {
      std::byte* at = bytes_.data() + shift + i * size;
      while (unordered(type, at)) {
        for (size_t b = 0; b < size; ++b) at[b] = static_cast<std::byte>(random());
      }
    }
  }
  const std::byte* data() const { return bytes_.data() + shift_; }

 private:
  static bool unordered(DataType type, const std::byte* at) {
    const std::byte zero[8] = {};
    return !same_element(type, at, at) || is_nan(type, at) || std::memcmp(at, zero, type_size(type) - 1) == 0;
  }
  static bool is_nan(DataType type, const std::byte* at) {
    uint16_t half = 0;
    float single = 0;
    double twice = 0;
    std::memcpy(&half, at, sizeof(half));
    switch (type) {
      case DataType::kFloat16:
        return std::isnan(float16_value(half));
      case DataType::kBFloat16:
        return std::isnan(bfloat16_value(half));
      case DataType::kFloat32:
        std::memcpy(&single, at, sizeof(single));
        return std::isnan(single);
      case DataType::kFloat64:
        std::memcpy(&twice, at, sizeof(twice));
        return std::isnan(twice);
      default:
        return false;
    }
  }
  std::vector<std::byte> bytes_;
  size_t shift_;
};

class ReduceTest : public KernelsTest {};

TEST_P(ReduceTest, EqualsPlainArithmetic) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      const size_t size = type_size(type);
      for (const size_t count : kCounts) {
        const size_t sources = 1 + random() % 5;
        const size_t shift = random() % 4;
        std::vector<Data> data;
        for (size_t k = 0; k < sources; ++k) data.emplace_back(type, op, count, (shift * k) % 9, random);
        std::vector<const void*> pointers;
        for (const Data& d : data) pointers.push_back(d.data());
        std::vector<std::byte> result(shift + count * size + 64, kGuard);
        reduce(type, op, pointers, result.data() + shift, count);
        for (size_t i = 0; i < count; ++i) {
          std::vector<const void*> at;
          for (const Data& d : data) at.push_back(d.data() + i * size);
          std::byte expected[8];
          if (sources == 1) {
            std::memcpy(expected, at[0], size);
          } else {
            reduce_element(type, op, at, expected);
          }
          ASSERT_TRUE(same_element(type, expected, result.data() + shift + i * size))
              << name_of(type) << " " << name_of(op) << ", " << sources << " sources, element " << i << " of "
              << count;
        }
        for (size_t i = 0; i < result.size(); ++i) {
          const bool outside = i < shift || i >= shift + count * size;
          if (outside) {
            ASSERT_EQ(result[i], kGuard) << "wrote outside, at " << i;
          }
        }
      }
    }
  }
}

TEST_P(ReduceTest, TakesNothing) {
  const void* sources[] = {nullptr, nullptr};
  reduce(DataType::kFloat32, ReduceOp::kSum, sources, nullptr, 0);
  copy_divided(DataType::kFloat32, nullptr, nullptr, 0, 3);
}

TEST_P(ReduceTest, DividesAsPlainArithmetic) {
  std::mt19937_64 random(kSeed);
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    const size_t size = type_size(type);
    for (const size_t count : kCounts) {
      for (const int divisor : {1, 2, 3, 7, 64, 1000}) {
        const Data data(type, ReduceOp::kSum, count, random() % 4, random);
        std::vector<std::byte> result(count * size);
        copy_divided(type, data.data(), result.data(), count, divisor);
        std::vector<std::byte> in_place(data.data(), data.data() + count * size);
        copy_divided(type, in_place.data(), in_place.data(), count, divisor);
        for (size_t i = 0; i < count; ++i) {
          std::byte expected[8];
          divide_element(type, data.data() + i * size, expected, divisor);
          ASSERT_TRUE(same_element(type, expected, &result[i * size]))
              << name_of(type) << " / " << divisor << ", element " << i << " of " << count;
          ASSERT_TRUE(same_element(type, expected, &in_place[i * size])) << name_of(type) << " in place";
        }
      }
    }
  }
}

HDT_INSTANTIATE_FOR_TARGETS(ReduceTest);

}  // namespace
}  // namespace hdt::collectives::testing
