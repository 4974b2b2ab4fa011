// exact_sum.cc: a double's digits are cut into words of 32 bits at the place that its exponent says.
#include "training/numbers/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace hdt::training {
namespace {

constexpr int kWordBits = 32;
constexpr uint64_t kWordMask = 0xFFFFFFFFU;
constexpr int kMantissaBits = std::numeric_limits<double>::digits - 1;
constexpr int kSmallestExponent = std::numeric_limits<double>::min_exponent - 1 - kMantissaBits;
// So often a word of 64 bits takes a number of 32 bits and its sign.
constexpr int64_t kMostAdditions = int64_t{1} << 30;

}  // namespace

void ExactSum::carry(Words& words) {
  for (size_t i = 0; i + 1 < kWords; ++i) {
    words[i + 1] += words[i] >> kWordBits;
    words[i] &= static_cast<int64_t>(kWordMask);
  }
}

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    special_ += value;
    return;
  }
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto exponent = static_cast<int>((bits >> kMantissaBits) & 0x7FFU);
  const uint64_t hidden = exponent == 0 ? 0 : uint64_t{1} << kMantissaBits;
  const uint64_t mantissa = (bits & ((uint64_t{1} << kMantissaBits) - 1)) | hidden;
  const int place = std::max(exponent, 1) - 1;
  const auto first = static_cast<size_t>(place / kWordBits);
  const int shift = place % kWordBits;
  // Of up to 53 + 31 bits.
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const std::array<uint64_t, 3> parts = {low & kWordMask, low >> kWordBits, high};
  const int64_t sign = std::signbit(value) ? -1 : 1;
  for (size_t i = 0; i < parts.size(); ++i) words_[first + i] += sign * static_cast<int64_t>(parts[i]);
  if (++since_carry_ < kMostAdditions) return;
  carry(words_);
  since_carry_ = 1;
}

void ExactSum::add(const ExactSum& other) {
  carry(words_);
  Words more = other.words_;
  carry(more);
  for (size_t i = 0; i < kWords; ++i) words_[i] += more[i];
  since_carry_ = 2;
  special_ += other.special_;
}

std::array<double, ExactSum::kNumbers> ExactSum::numbers() const {
  Words words = words_;
  carry(words);
  std::array<double, kNumbers> numbers = {};
  std::ranges::transform(words, numbers.begin(), [](int64_t word) { return static_cast<double>(word); });
  numbers.back() = special_;
  return numbers;
}

// After the carry there is one form of every number, so the roundings of this sum are always the same.
double ExactSum::value_of(std::span<const double, kNumbers> numbers) {
  if (numbers.back() != 0) return numbers.back();
  Words words = {};
  std::ranges::transform(numbers.first<kWords>(), words.begin(),
                         [](double number) { return static_cast<int64_t>(number); });
  carry(words);
  const bool negative = words.back() < 0;
  if (negative) {
    for (int64_t& word : words) word = -word;
    carry(words);
  }
  double sum = 0;
  for (size_t i = 0; i < kWords; ++i) {
    if (words[i] == 0) continue;
    sum += std::ldexp(static_cast<double>(words[i]), kSmallestExponent + kWordBits * static_cast<int>(i));
  }
  return negative ? -sum : sum;
}

}  // namespace hdt::training
