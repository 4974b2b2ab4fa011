// float8_tables.h: the sum of two 8-bit floats as tables that are short enough for vector registers
// (float8_sum-inl.h).
//
// The bits of a positive number, read as an integer, are its code. Between normal numbers the code of a
// sum is the larger code plus a growth that depends only on the larger one's fraction and on how far the
// two codes are apart: twice the numbers are twice the sum, and twice a number is 2^kFractionBits more
// in its code.
//
// Denormals do not obey that. So everything is done in scaled codes, those of a format with exponents enough
// to have no denormals; only zero is apart, so far below that it adds nothing. A sum of denormals is not
// rounded differently there: it is a multiple of the smallest denormal and has no more bits than a fraction.
#pragma once

#include <array>
#include <cstdint>

namespace hdt::collectives {

// The tables for one format: 3 bits of fraction for E4M3, 2 for E5M2. Computed at compile time.
template <int kFractionBits>
struct Float8Tables {
  static constexpr int kOctave = 1 << kFractionBits;  // codes between a number and twice that number
  // If two codes are at least so far apart, the smaller number is below a quarter of the larger one's
  // last bit and changes nothing.
  static constexpr int kReach = kFractionBits == 3 ? 48 : 32;
  static constexpr int kParts = kReach * kOctave / 128;  // tables of 128 entries
  // The offset of scaled codes. It gives the smallest normal number the code 128, and everything below
  // it, which has other codes in the format, a clear highest bit. Zero has 0, more than kReach below the
  // smallest denormal.
  static constexpr int kBase = 128 - kOctave;

  using Part = std::array<uint8_t, 128>;
  // The growth: what is to be added to the larger scaled code, modulo 256, if the signs are equal and if
  // they differ. The index is [distance / (128 / kOctave)][distance % (128 / kOctave) * kOctave +
  // fraction]. Equal numbers of different sign are not in it.
  alignas(64) std::array<Part, kParts> sum{};
  alignas(64) std::array<Part, kParts> difference{};
  alignas(64) Part scaled{};  // the scaled code, by code
  // The code, by scaled code of a denormal, modulo 64; of any other: 0.
  alignas(64) std::array<uint8_t, 64> code{};

  constexpr Float8Tables() {
    // The growth of every pair of fraction and distance, computed exactly in integers.
    for (int distance = 0; distance < kReach; ++distance) {
      for (int fraction = 0; fraction < kOctave; ++fraction) {
        const auto part = static_cast<unsigned>(distance * kOctave / 128);
        const auto at = static_cast<unsigned>((distance * kOctave + fraction) % 128);
        const int64_t larger = value(fraction), smaller = value(fraction - distance);
        sum[part][at] = static_cast<uint8_t>(nearest(larger + smaller) - fraction);
        if (distance > 0) difference[part][at] = static_cast<uint8_t>(nearest(larger - smaller) - fraction);
      }
    }
    // A denormal of `number` units has the scaled code of the normal number with that value.
    for (unsigned number = 1; number < scaled.size(); ++number) {
      const int denormal = nearest(static_cast<int64_t>(number) << (kPoint - kFractionBits)) + kOctave;
      scaled[number] = static_cast<uint8_t>(kBase + (number < kOctave ? denormal : static_cast<int>(number)));
      if (number < kOctave) code[scaled[number] % 64] = static_cast<uint8_t>(number);
    }
  }

 private:
  // Bits behind the point of the fixed-point numbers below; more than kReach can shift out.
  static constexpr int kPoint = 24;

  // The value of a code, where code 0 is 1. Codes below 0 continue the exponents downwards.
  static constexpr int64_t value(int code) {
    const int exponent = code >> kFractionBits;
    const int64_t bits = static_cast<int64_t>(kOctave + (code & (kOctave - 1))) << (kPoint - kFractionBits);
    return exponent < 0 ? bits >> -exponent : bits << exponent;
  }
  // The code of the number next to `value`, the even one of two that are equally near.
  static constexpr int nearest(int64_t value) {
    int exponent = 0;
    while (value < (int64_t{1} << kPoint)) value <<= 1, --exponent;
    while (value >= (int64_t{2} << kPoint)) {
      value = value >> 1 | (value & 1);  // what is lost still tells a tie from more than one
      ++exponent;
    }
    constexpr int kCut = kPoint - kFractionBits;
    const int64_t kept = value >> kCut, rest = value & ((int64_t{1} << kCut) - 1),
                  half = int64_t{1} << (kCut - 1);
    const bool up = rest > half || (rest == half && kept % 2 == 1);
    return exponent * kOctave + static_cast<int>(kept) + (up ? 1 : 0) - kOctave;
  }
};

template <int kFractionBits>
inline constexpr Float8Tables<kFractionBits> kFloat8Tables{};

}  // namespace hdt::collectives
