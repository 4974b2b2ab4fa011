// float8_sum-inl.h: the sum of two vectors of 8-bit floats by tables, 64 elements at a time, if the CPU
// looks up bytes in 128 at once (AVX-512 VBMI). It takes 40 instructions, where conversions to wider
// types and back take 200. Compiled once for each SIMD target. float8_tables.h explains the tables.
#if defined(HDT_COLLECTIVES_FLOAT8_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HDT_COLLECTIVES_FLOAT8_SUM_INL_H_
#undef HDT_COLLECTIVES_FLOAT8_SUM_INL_H_
#else
#define HDT_COLLECTIVES_FLOAT8_SUM_INL_H_
#endif

#include "collectives/float8_tables.h"
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace hdt::collectives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// table[index % 128] for each lane; below, table[index % 64].
HWY_INLINE hn::Vec512<uint8_t> looked_up(const std::array<uint8_t, 128>& table, hn::Vec512<uint8_t> index) {
  const hn::Full512<uint8_t> d;
  const auto lower = hn::Load(d, table.data()), upper = hn::Load(d, table.data() + 64);
  return hn::Vec512<uint8_t>{_mm512_permutex2var_epi8(lower.raw, index.raw, upper.raw)};
}
HWY_INLINE hn::Vec512<uint8_t> looked_up(const std::array<uint8_t, 64>& table, hn::Vec512<uint8_t> index) {
  const hn::Full512<uint8_t> d;
  return hn::Vec512<uint8_t>{_mm512_permutexvar_epi8(index.raw, hn::Load(d, table.data()).raw)};
}

// a + b to nearest even, and no more than the number of code kLargest; the codes up to kLargest are
// those of all finite numbers. Returns false if a or b is no such number (infinity, NaN). `result` is
// then not valid, but is computed all the same, because constants stay in registers then.
//
// Steps: scaled codes of both; their distance and the larger one's fraction; the growth from the tables;
// the scaled code of the sum; its code and sign.
template <int kFractionBits, int kLargest>
HWY_INLINE bool sum_by_tables(hn::Vec512<uint8_t> a, hn::Vec512<uint8_t> b, hn::Vec512<uint8_t>& result) {
  using Tables = Float8Tables<kFractionBits>;
  constexpr const Tables& kTables = kFloat8Tables<kFractionBits>;
  const hn::Full512<uint8_t> d;
  const hn::Full512<uint16_t> d16;
  const auto highest_bit = [](hn::Vec512<uint8_t> bytes) HWY_ATTR {
    return hn::RebindMask(hn::Full512<uint8_t>(), hn::MaskFromVec(hn::BitCast(hn::Full512<int8_t>(), bytes)));
  };
  const auto scaled_a = looked_up(kTables.scaled, a), scaled_b = looked_up(kTables.scaled, b);
  const auto larger = hn::Max(scaled_a, scaled_b), smaller = hn::Min(scaled_a, scaled_b);

  const auto differ = highest_bit(hn::Xor(a, b));
  const auto distance = hn::Min(hn::Sub(larger, smaller), hn::Set(d, Tables::kReach - 1));
  // Shifted as pairs of bytes, as there is no shift of bytes. Bits that come over from the other byte
  // lie where the fraction goes, or are not looked at.
  const auto pairs = hn::BitCast(d16, distance);
  const auto shifted = hn::BitCast(d, hn::ShiftLeft<kFractionBits>(pairs));
  const auto index = hn::IfVecThenElse(hn::Set(d, Tables::kOctave - 1), larger, shifted);
  const auto growth_in = [&](size_t part) HWY_ATTR {
    return hn::IfThenElse(differ, looked_up(kTables.difference[part], index),
                          looked_up(kTables.sum[part], index));
  };
  auto growth = growth_in(0);
  // The bits of the distance above those in the index select the part of the table.
  if constexpr (Tables::kParts == 3) {
    const auto shifted_less = hn::BitCast(d, hn::ShiftLeft<kFractionBits - 1>(pairs));
    growth = hn::IfThenElse(highest_bit(shifted), growth_in(1), growth);
    growth = hn::IfThenElse(highest_bit(shifted_less), growth_in(2), growth);
  }
  const auto largest = hn::Set(d, kLargest + Tables::kBase);
  const auto scaled = hn::Min(hn::Add(larger, growth), largest);

  const auto normal = hn::Sub(scaled, hn::Set(d, Tables::kBase));
  const auto code = hn::IfThenElse(highest_bit(scaled), normal, looked_up(kTables.code, scaled));
  // The sign of the number with the larger magnitude. Equal numbers of different sign give +0, below.
  const auto sign_of = hn::IfThenElse(hn::Gt(scaled_b, scaled_a), b, a);
  const auto number = hn::IfVecThenElse(hn::Set(d, 0x80), sign_of, code);
  result = hn::IfThenZeroElse(hn::And(differ, hn::Eq(scaled_a, scaled_b)), number);
  return hn::AllFalse(d, hn::Gt(larger, largest));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace hdt::collectives
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // the toggle
