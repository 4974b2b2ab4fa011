// kernels_test.cc: reduce, copy_divided and scale on random data against plain C++: all types, ops, numbers
// of sources, counts and misalignments, on every SIMD target of this CPU.
#include "collectives/kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <vector>

#include "tests/unit/collectives/kernels_fixture.h"
#include "tests/unit/collectives/narrow_floats.h"
#include "tests/unit/collectives/scalar_reference.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kSeed = 7;
constexpr size_t kCounts[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100, 257};
constexpr std::byte kGuard{0xC3};

bool is_float(DataType type) {
  return narrow_float(type) || type == DataType::kFloat32 || type == DataType::kFloat64;
}

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
    if (!is_float(type)) return false;
    const std::byte zero[8] = {};
    const size_t last = type_size(type) - 1;
    const bool is_zero = std::memcmp(at, zero, last) == 0 && (at[last] & std::byte{0x7F}) == std::byte{0};
    return is_nan(type, at) || is_zero;
  }
  std::vector<std::byte> bytes_;
  size_t shift_;
};

class ReduceTest : public KernelsTest {};

// One random call of reduce(): sources at odd addresses, several destinations, some of which may be sources.
class Call {
 public:
  Call(DataType type, ReduceOp op, size_t count, std::mt19937_64& random)
      : type_(type),
        op_(op),
        count_(count),
        stores_(random() % 2 == 0 ? Stores::kCached : Stores::kStreaming) {
    const size_t sources = 1 + random() % 5;
    const size_t shift = random() % 4;
    for (size_t k = 0; k < sources; ++k) data_.emplace_back(type, op, count, (shift * k) % 9, random);
    for (const Data& d : data_) sources_.push_back(d.data());
    expect();
    // Streaming stores need results that are aligned alike: half of the calls have such.
    const bool alike = random() % 2 == 0;
    for (size_t k = 0, n = 1 + random() % 3; k < n; ++k) {
      if (random() % 4 == 0 && k < data_.size()) {
        destinations_.push_back(const_cast<std::byte*>(data_[k].data()));
        continue;
      }
      const size_t shift_of_result = (alike ? shift : random() % 64) * (alike ? type_size(type) : 1);
      results_.push_back(std::vector<std::byte>(shift_of_result + count * type_size(type) + 64, kGuard));
      shifts_.push_back(shift_of_result);
    }
    for (size_t k = 0; k < results_.size(); ++k) destinations_.push_back(results_[k].data() + shifts_[k]);
  }

  void run() {
    reduce(type_, op_, sources_, destinations_, count_, stores_);
    const size_t size = type_size(type_);
    for (const void* const destination : destinations_) {
      for (size_t i = 0; i < count_; ++i) {
        ASSERT_TRUE(
            same_element(type_, &expected_[i * size], static_cast<const std::byte*>(destination) + i * size))
            << name_of(type_) << " " << name_of(op_) << ", " << sources_.size() << " sources, "
            << destinations_.size() << " destinations, element " << i << " of " << count_;
      }
    }
    for (size_t k = 0; k < results_.size(); ++k) {
      for (size_t i = 0; i < results_[k].size(); ++i) {
        const bool outside = i < shifts_[k] || i >= shifts_[k] + count_ * size;
        if (outside) {
          ASSERT_EQ(results_[k][i], kGuard) << "wrote outside, at " << i;
        }
      }
    }
  }

 private:
  void expect() {
    const size_t size = type_size(type_);
    expected_.resize(count_ * size);
    for (size_t i = 0; i < count_; ++i) {
      std::vector<const void*> at;
      for (const Data& d : data_) at.push_back(d.data() + i * size);
      if (at.size() == 1) {
        std::memcpy(&expected_[i * size], at[0], size);
      } else {
        reduce_element(type_, op_, at, &expected_[i * size]);
      }
    }
  }

  DataType type_;
  ReduceOp op_;
  size_t count_;
  Stores stores_;
  std::vector<Data> data_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
  std::vector<std::vector<std::byte>> results_;
  std::vector<size_t> shifts_;
  std::vector<std::byte> expected_;
};

TEST_P(ReduceTest, EqualsPlainArithmetic) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!can_reduce(static_cast<DataType>(type), static_cast<ReduceOp>(op))) continue;
      for (const size_t count : kCounts) {
        Call call(static_cast<DataType>(type), static_cast<ReduceOp>(op), count, random);
        ASSERT_NO_FATAL_FAILURE(call.run());
      }
    }
  }
}

TEST_P(ReduceTest, TakesNothing) {
  const void* sources[] = {nullptr, nullptr};
  void* destinations[] = {nullptr};
  const float factor = 2;
  reduce(DataType::kFloat32, ReduceOp::kSum, sources, destinations, 0);
  copy_divided(DataType::kFloat32, nullptr, nullptr, 0, 3);
  scale(DataType::kFloat32, &factor, nullptr, nullptr, 0);
}

// Both into other memory and in place.
void expect_each(DataType type, const Data& data, size_t count,
                 const std::function<void(const void*, void*)>& kernel,
                 const std::function<void(const void*, void*)>& reference) {
  const size_t size = type_size(type);
  std::vector<std::byte> result(count * size);
  kernel(data.data(), result.data());
  std::vector<std::byte> in_place(data.data(), data.data() + count * size);
  kernel(in_place.data(), in_place.data());
  for (size_t i = 0; i < count; ++i) {
    std::byte expected[8];
    reference(data.data() + i * size, expected);
    ASSERT_TRUE(same_element(type, expected, &result[i * size])) << name_of(type) << ", element " << i;
    ASSERT_TRUE(same_element(type, expected, &in_place[i * size]))
        << name_of(type) << " in place, element " << i;
  }
}

TEST_P(ReduceTest, DividesAsPlainArithmetic) {
  std::mt19937_64 random(kSeed);
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const size_t count : kCounts) {
      for (const int divisor : {1, 2, 3, 7, 64, 1000}) {
        const Data data(type, ReduceOp::kSum, count, random() % 4, random);
        ASSERT_NO_FATAL_FAILURE(expect_each(
            type, data, count,
            [&](const void* from, void* to) { copy_divided(type, from, to, count, divisor); },
            [&](const void* from, void* to) { divide_element(type, from, to, divisor); }));
      }
    }
  }
}

TEST_P(ReduceTest, ScalesAsPlainArithmetic) {
  std::mt19937_64 random(kSeed);
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const size_t count : kCounts) {
      const Data data(type, ReduceOp::kSum, count, random() % 4, random);
      const Data scalar(type, ReduceOp::kSum, 1, random() % 4, random);
      ASSERT_NO_FATAL_FAILURE(expect_each(
          type, data, count, [&](const void* from, void* to) { scale(type, scalar.data(), from, to, count); },
          [&](const void* from, void* to) { scale_element(type, scalar.data(), from, to); }));
    }
  }
}

HDT_INSTANTIATE_FOR_TARGETS(ReduceTest);

}  // namespace
}  // namespace hdt::collectives::testing
