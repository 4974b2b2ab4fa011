// exact_sum.h: a sum of doubles without rounding, so that it does not depend on the order, nor on which rank
// adds which number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hdt::training {

// A fixed-point number that is long enough for all doubles. A value; nothing is shared among threads.
class ExactSum {
 public:
  // The numbers that stand for a sum.
  static constexpr size_t kNumbers = 69;

  void add(double value);
  void add(const ExactSum& other);
  // Whole numbers, and a last one that is 0 unless infinities or nans were added. Those of up to 2^20 sums
  // may be added in double, number by number and in any order: they stand for the sum of all.
  std::array<double, kNumbers> numbers() const;
  // What such numbers stand for, the same for the same sum.
  static double value_of(std::span<const double, kNumbers> numbers);

 private:
  static constexpr size_t kWords = kNumbers - 1;
  using Words = std::array<int64_t, kWords>;
  // Moves what is above 32 bits into the next word. Only the last one stays negative, if the number is.
  static void carry(Words& words);

  // Word i counts 2^(32 i) times the smallest double.
  Words words_ = {};
  int64_t since_carry_ = 0;  // what was added to a word since then, in multiples of 2^32
  double special_ = 0;       // the sum of infinities and nans
};

}  // namespace hdt::training
