// formats-inl.h: how each element type is loaded into the lanes it is computed in, and stored back.
// Compiled once for each SIMD target (see kernels.cc). Integers, fp32 and fp64 are computed as they are;
// fp16, bf16 and fp8 in fp32 lanes.
//
// A format has: Stored, the type in memory; Raw, a full vector of it; Value, the lanes to compute in;
// widen(Raw) and narrow(Value); and map(f, Values...), which applies f to the vectors that a Value is
// made of. Some have sum(Raw, Raw), too, which gives the same bits as the path through Values, sooner.
#if defined(HDT_COLLECTIVES_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HDT_COLLECTIVES_FORMATS_INL_H_
#undef HDT_COLLECTIVES_FORMATS_INL_H_
#else
#define HDT_COLLECTIVES_FORMATS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "collectives/float8_sum-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hdt::collectives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Types that are computed as they are stored.
template <typename T>
struct PlainFormat {
  using Stored = T;
  using Raw = hn::Vec<hn::ScalableTag<T>>;
  using Value = Raw;
  HWY_INLINE Value widen(Raw raw) const { return raw; }
  HWY_INLINE Raw narrow(Value value) const { return value; }
  template <class F, class... V>
  HWY_INLINE Value map(F f, V... values) const {
    return f(values...);
  }
};

// Formats narrower than fp32. A vector of u32 lanes holds kParts elements in each lane; part k of a
// Value holds every lane's element k. So no element ever crosses a lane, whatever the target. Derived
// defines widen_bits and narrow_bits, which turn the low bits of u32 lanes (zero above them) into fp32
// and back.
template <class Derived, typename T>
struct SplitFormat {
  using Stored = T;
  static constexpr int kBits = 8 * sizeof(T);
  static constexpr int kParts = 32 / kBits;
  using Single = hn::ScalableTag<float>;
  using Bits = hn::RebindToUnsigned<Single>;
  using Floats = hn::Vec<Single>;
  using Words = hn::Vec<Bits>;
  using Raw = hn::Vec<hn::ScalableTag<T>>;
  struct Value {
    Floats part[kParts];
  };
  const Single d;
  const Bits du;

  HWY_INLINE Value widen(Raw raw) const {
    const Words words = hn::BitCast(du, raw);
    Value value;
    value.part[0] = derived().widen_bits(low(words));
    value.part[1] = derived().widen_bits(low(hn::ShiftRight<kBits>(words)));
    if constexpr (kParts == 4) {
      value.part[2] = derived().widen_bits(low(hn::ShiftRight<2 * kBits>(words)));
      value.part[3] = derived().widen_bits(hn::ShiftRight<32 - kBits>(words));
    }
    return value;
  }
  HWY_INLINE Raw narrow(const Value& value) const {
    Words words = derived().narrow_bits(value.part[0]);
    words = hn::Or(words, hn::ShiftLeft<kBits>(derived().narrow_bits(value.part[1])));
    if constexpr (kParts == 4) {
      words = hn::Or(words, hn::ShiftLeft<2 * kBits>(derived().narrow_bits(value.part[2])));
      words = hn::Or(words, hn::ShiftLeft<32 - kBits>(derived().narrow_bits(value.part[3])));
    }
    return hn::BitCast(hn::ScalableTag<T>(), words);
  }
  // Applies f to each part.
  template <class F, class... V>
  HWY_INLINE Value map(F f, const V&... values) const {
    if constexpr (kParts == 2) {
      return {{f(values.part[0]...), f(values.part[1]...)}};
    } else {
      return {{f(values.part[0]...), f(values.part[1]...), f(values.part[2]...), f(values.part[3]...)}};
    }
  }

 protected:
  // A constant in all lanes.
  HWY_INLINE Words word(uint32_t value) const { return hn::Set(du, value); }

 private:
  const Derived& derived() const { return *static_cast<const Derived*>(this); }
  HWY_INLINE Words low(Words words) const { return hn::And(words, word((1u << kBits) - 1)); }
};

// bf16 is the upper half of fp32.
struct BFloat16Format : SplitFormat<BFloat16Format, uint16_t> {
  // An element in the upper half of a lane is the fp32 already; below it only what must be cut.
  HWY_INLINE Value widen(Raw raw) const {
    const Words words = hn::BitCast(du, raw);
    return {{hn::BitCast(d, hn::ShiftLeft<16>(words)), hn::BitCast(d, hn::And(words, word(0xFFFF0000)))}};
  }
  HWY_INLINE Raw narrow(const Value& value) const {
    const Words even = hn::ShiftRight<16>(rounded(value.part[0]));
    const Words odd = hn::And(rounded(value.part[1]), word(0xFFFF0000));
    return hn::BitCast(hn::ScalableTag<uint16_t>(), hn::Or(even, odd));
  }
  // The sum of two: rounded for all elements at once, on the 16-bit halves of the fp32 sums. The upper
  // half goes up by one if the lower half is above one half of the last kept bit's weight, or is exactly
  // that and the bit is odd. Vectors with a NaN take the usual path.
  HWY_INLINE Raw sum(Raw a, Raw b) const {
    const Value x = widen(a), y = widen(b);
    const Floats even = hn::Add(x.part[0], y.part[0]), odd = hn::Add(x.part[1], y.part[1]);
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Or(hn::IsNaN(even), hn::IsNaN(odd))))) {
      return narrow({{even, odd}});
    }
    const hn::ScalableTag<uint16_t> d16;
    const Words even_bits = hn::BitCast(du, even), odd_bits = hn::BitCast(du, odd);
    const auto kept = hn::BitCast(
        d16, hn::OddEven(hn::BitCast(d16, odd_bits), hn::BitCast(d16, hn::ShiftRight<16>(even_bits))));
    const auto cut = hn::BitCast(
        d16, hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(odd_bits)), hn::BitCast(d16, even_bits)));
    const auto one = hn::Set(d16, 1);
    const auto half = hn::Sub(hn::Set(d16, 0x8000), hn::And(kept, one));
    return hn::Add(kept, hn::Min(hn::SaturatedSub(cut, half), one));
  }

 private:
  // Rounds to nearest even, in the upper half: adds half of the last kept bit's weight, less one if that bit
  // is even. A NaN would be rounded to infinity, or its sign would turn, so it is cut and made quiet instead.
  HWY_INLINE Words rounded(Floats value) const {
    const Words bits = hn::BitCast(du, value);
    const Words odd = hn::And(hn::ShiftRight<16>(bits), word(1));
    const Words up = hn::Add(bits, hn::Add(odd, word(0x7FFF)));
    const auto is_number = hn::RebindMask(du, hn::Eq(value, value));
    return hn::IfThenElse(is_number, up, hn::Or(bits, word(0x400000)));
  }
};

// fp16 takes conversion instructions if every CPU of the target has them (F16C comes with AVX2), else it
// is done on bits.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
struct Float16Format : SplitFormat<Float16Format, uint16_t> {
  using Halves = hn::Rebind<hwy::float16_t, Single>;
  HWY_INLINE Value widen(Raw raw) const {
    const hn::ScalableTag<hwy::float16_t> whole;
    const auto halves = hn::BitCast(whole, raw);
    return {{hn::PromoteTo(d, hn::LowerHalf(Halves(), halves)),
             hn::PromoteTo(d, hn::UpperHalf(Halves(), halves))}};
  }
  HWY_INLINE Raw narrow(const Value& value) const {
    const hn::ScalableTag<uint16_t> whole;
    const hn::Half<decltype(whole)> half;
    return hn::Combine(whole, hn::BitCast(half, hn::DemoteTo(Halves(), value.part[1])),
                       hn::BitCast(half, hn::DemoteTo(Halves(), value.part[0])));
  }
};
#else
struct Float16Format : SplitFormat<Float16Format, uint16_t> {
  // With the sign apart, the bits moved to binary32's place are the value times 2^-112 (the difference
  // of the biases, 127 - 15), denormals included. A multiplication undoes that; then only the all-ones
  // exponent of infinity and NaN is left to be put in.
  HWY_INLINE Floats widen_bits(Words bits) const {
    const Words sign = hn::ShiftLeft<16>(hn::And(bits, word(0x8000)));
    const Words moved = hn::ShiftLeft<13>(hn::And(bits, word(0x7FFF)));
    const Words scaled = hn::BitCast(du, hn::Mul(hn::BitCast(d, moved), hn::Set(d, 0x1p112f)));
    const Words exponent = hn::IfThenElseZero(hn::Gt(moved, word((0x7C00u << 13) - 1)), word(0x7F800000));
    return hn::BitCast(d, hn::Or(sign, hn::Or(scaled, exponent)));
  }
  // Rounds to nearest even, by magnitude. Below 2^-14, the smallest normal number, the sum with 0.5 has
  // the denormal's bits (in units of 2^-24, rounded by the addition) at its low end. Above, it goes as
  // for bf16, with the exponent's bias moved. From 65,520 on the result is infinity.
  HWY_INLINE Words narrow_bits(Floats value) const {
    const Words bits = hn::BitCast(du, value);
    const Words sign = hn::ShiftRight<16>(hn::And(bits, word(0x80000000u)));
    const Words magnitude = hn::And(bits, word(0x7FFFFFFF));
    const Words half = word(0x3F000000);
    const Words denormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
    const Words odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
    const Words normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(word(0xFFFu - (112u << 23)), odd)));
    const Words quiet = hn::Or(word(0x7E00), hn::And(hn::ShiftRight<13>(magnitude), word(0x3FF)));
    Words result = hn::IfThenElse(hn::Lt(magnitude, word(0x38800000)), denormal, normal);
    result = hn::IfThenElse(hn::Gt(magnitude, word(0x477FEFFF)), word(0x7C00), result);
    result = hn::IfThenElse(hn::Gt(magnitude, word(0x7F800000)), quiet, result);
    return hn::Or(result, sign);
  }
};
#endif

// The 8-bit formats of OCP's specification (8-bit Floating Point, revision 1.0, 2023). E4M3 has no
// infinity and one NaN (all ones); E5M2 is fp16 cut short. A finite number that is too large becomes the
// largest finite one. NaN stays NaN, and an infinity of E5M2 stays infinite. (Comparisons are of signed
// lanes, as targets have no others.)
template <int kExponentBits>
struct Float8Format : SplitFormat<Float8Format<kExponentBits>, uint8_t> {
  using Base = SplitFormat<Float8Format<kExponentBits>, uint8_t>;
  using Base::d;
  using Base::du;
  using Base::word;
  using typename Base::Floats;
  using typename Base::Raw;
  using typename Base::Single;
  using typename Base::Value;
  using typename Base::Words;
  using Signed = hn::RebindToSigned<Single>;
  static constexpr bool kHasInfinity = kExponentBits == 5;
  static constexpr int kFractionBits = 7 - kExponentBits;
  static constexpr int kShift = 23 - kFractionBits;  // from here to binary32's fraction
  static constexpr uint32_t kBias = (1u << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kRebias = (127 - kBias) << 23;          // between the biases, in binary32's place
  static constexpr uint32_t kSmallestNormal = (128 - kBias) << 23;  // 2^(1 - bias), as binary32
  static constexpr uint32_t kLargest = kHasInfinity ? 0x7B : 0x7E;  // code of the largest finite number
  static constexpr uint32_t kLargestBits = (kLargest << kShift) + kRebias;
  static constexpr uint32_t kInfinityBits = 0x7F800000;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  // Through fp16, whose conversions are instructions. Parts: the elements at even places of the vector's
  // lower and upper half, then those at odd places. E4M3 moved to fp16's place is the value times 2^-8
  // (biases 15 - 7), denormals included.
  HWY_INLINE Value widen(Raw raw) const {
    const hn::ScalableTag<uint16_t> d16;
    const auto pairs = hn::BitCast(d16, raw);
    const auto even = half_precision(hn::ShiftLeft<8>(pairs));
    const auto odd = half_precision(hn::And(pairs, hn::Set(d16, 0xFF00)));
    const hn::Rebind<hwy::float16_t, Single> half;
    return {
        { single(hn::LowerHalf(half, even)),
          single(hn::UpperHalf(half, even)),
          single(hn::LowerHalf(half, odd)),
          single(hn::UpperHalf(half, odd)) }};
  }
  // The inverse: even places in the lower bytes, odd ones in the upper bytes.
  HWY_INLINE Raw narrow(const Value& value) const {
    const auto even = joined(value.part[0], value.part[1]);
    const auto odd = joined(value.part[2], value.part[3]);
    return hn::BitCast(hn::ScalableTag<uint8_t>(), hn::Or(even, hn::ShiftLeft<8>(odd)));
  }
  // The sum of two; vectors with an infinity or a NaN take the usual path.
  HWY_INLINE Raw sum(Raw a, Raw b) const {
    Raw result;
    if (HWY_LIKELY(finite_sum(a, b, result))) return result;
    return narrow(this->map([](Floats x, Floats y) { return hn::Add(x, y); }, widen(a), widen(b)));
  }

 private:
  using Halves = hn::Vec<hn::ScalableTag<uint16_t>>;
  static constexpr int kPlace = 10 - kFractionBits;  // of the last bit, in fp16

#if HWY_TARGET == HWY_AVX3_DL
  // With byte look-ups in 128 entries the sum needs no conversion (float8_sum-inl.h).
  HWY_INLINE bool finite_sum(Raw a, Raw b, Raw& result) const {
    return sum_by_tables<kFractionBits, kLargest>(a, b, result);
  }
// The sum of two has the same bits if it is rounded to fp16 first: rounding to p bits is not changed by
// an earlier rounding to at least 2p + 2 bits (Figueroa, "When is double rounding innocuous?", 1995),
// and fp16 has 11 where the formats have 4 or 3. So the rest is done on 16-bit lanes, for E4M3 on values
// times 2^-8. Returns false if not all elements are finite.
#else
  // The sum of two has the same bits if it is rounded to fp16 first: rounding to p bits is not changed by
  // rounding to at least 2p + 2 before (Figueroa, "When is double rounding innocuous?", 1995), and fp16 has
  // 11 where the formats have 4 or 3. So the rest is done on 16-bit lanes, of E4M3 times 2^-8. False: not all
  // are finite.
  HWY_INLINE bool finite_sum(Raw a, Raw b, Raw& result) const {
    const hn::ScalableTag<int8_t> d8;
    const auto magnitudes = hn::Set(hn::ScalableTag<uint8_t>(), 0x7F);
    const auto greatest = hn::BitCast(d8, hn::Max(hn::And(a, magnitudes), hn::And(b, magnitudes)));
    if (HWY_UNLIKELY(!hn::AllFalse(d8, hn::Gt(greatest, hn::Set(d8, kLargest))))) return false;
    const hn::ScalableTag<uint16_t> d16;
    const auto pairs_a = hn::BitCast(d16, a), pairs_b = hn::BitCast(d16, b);
    const auto upper = hn::Set(d16, 0xFF00);
    const auto even = rounded(added(hn::ShiftLeft<8>(pairs_a), hn::ShiftLeft<8>(pairs_b)));
    const auto odd = rounded(added(hn::And(pairs_a, upper), hn::And(pairs_b, upper)));
    result = hn::BitCast(hn::ScalableTag<uint8_t>(), hn::Or(even, hn::ShiftLeft<8>(odd)));
    return true;
  }

  // Finite elements in the upper bytes as fp16 (E4M3: times 2^-8).
  HWY_INLINE static auto finite_half(Halves upper_bytes) {
    const hn::ScalableTag<uint16_t> d16;
    const hn::ScalableTag<hwy::float16_t> half;
    if constexpr (kHasInfinity) {
      return hn::BitCast(half, upper_bytes);
    } else {
      const hn::ScalableTag<int16_t> signed16;
      const auto moved = hn::BitCast(d16, hn::ShiftRight<1>(hn::BitCast(signed16, upper_bytes)));
      return hn::BitCast(half, hn::And(moved, hn::Set(d16, 0xBF80)));  // the sign came along
    }
  }
  // The sums of elements in the upper bytes, as fp16.
  HWY_INLINE Halves added(Halves a, Halves b) const {
    const hn::Rebind<hwy::float16_t, Single> half;
    const hn::ScalableTag<uint16_t> d16;
    const hn::Half<decltype(d16)> part;
    const auto x = finite_half(a), y = finite_half(b);
    const Floats lower =
        hn::Add(hn::PromoteTo(d, hn::LowerHalf(half, x)), hn::PromoteTo(d, hn::LowerHalf(half, y)));
    const Floats upper =
        hn::Add(hn::PromoteTo(d, hn::UpperHalf(half, x)), hn::PromoteTo(d, hn::UpperHalf(half, y)));
    return hn::Combine(d16, hn::BitCast(part, hn::DemoteTo(half, upper)),
                       hn::BitCast(part, hn::DemoteTo(half, lower)));
  }
  // fp16 to the lower byte, to nearest even: adds half of the last kept bit's weight, less one if that
  // bit is even. Too large a sum becomes the largest number.
  HWY_INLINE static Halves rounded(Halves half) {
    const hn::ScalableTag<uint16_t> d16;
    const auto magnitude = hn::And(half, hn::Set(d16, 0x7FFF));
    const auto odd = hn::And(hn::ShiftRight<kPlace>(magnitude), hn::Set(d16, 1));
    const auto up = hn::Add(magnitude, hn::Add(odd, hn::Set(d16, (1u << (kPlace - 1)) - 1)));
    const auto result = hn::Min(hn::ShiftRight<kPlace>(up), hn::Set(d16, kLargest));
    return hn::Or(result, hn::ShiftRight<8>(hn::And(half, hn::Set(d16, 0x8000))));
  }

#endif

  // Elements in the upper bytes as fp16, NaN and infinity included.
  template <class V>
  HWY_INLINE static auto half_precision(V upper_bytes) {
    const hn::DFromV<V> d16;
    const hn::ScalableTag<hwy::float16_t> half;
    if constexpr (kHasInfinity) {
      return hn::BitCast(half, upper_bytes);
    } else {
      const auto magnitude = hn::ShiftRight<1>(hn::And(upper_bytes, hn::Set(d16, 0x7F00)));
      const auto sign = hn::And(upper_bytes, hn::Set(d16, 0x8000));
      const auto is_nan = hn::VecFromMask(d16, hn::Eq(magnitude, hn::Set(d16, 0x3F80)));
      const auto exponent = hn::And(is_nan, hn::Set(d16, 0x7C00));
      return hn::BitCast(half, hn::Or(hn::Or(magnitude, sign), exponent));
    }
  }
  // fp16 to fp32; for E4M3 the factor 2^8 is undone here.
  template <class V>
  HWY_INLINE Floats single(V half) const {
    if constexpr (kHasInfinity) {
      return hn::PromoteTo(d, half);
    } else {
      return hn::Mul(hn::PromoteTo(d, half), hn::Set(d, 256.0f));
    }
  }
  // Two parts as bytes in 16-bit lanes.
  HWY_INLINE auto joined(Floats lower, Floats upper) const {
    const hn::ScalableTag<uint16_t> d16;
    const hn::Half<decltype(d16)> half;
    const Signed di;
    return hn::Combine(d16, hn::DemoteTo(half, hn::BitCast(di, narrow_bits(upper))),
                       hn::DemoteTo(half, hn::BitCast(di, narrow_bits(lower))));
  }

 public:
#endif

  // A denormal's fraction behind the smallest normal number's leading one, less that one, is the denormal.
  // That is exact, and avoids the slow path that processors take with denormal operands of binary32.
  HWY_INLINE Floats widen_bits(Words bits) const {
    const Words sign = hn::ShiftLeft<24>(hn::And(bits, word(0x80)));
    const Words magnitude = hn::And(bits, word(0x7F));
    const Words moved = hn::ShiftLeft<kShift>(magnitude);
    const Words normal = hn::Add(moved, word(kRebias));
    const Floats one = hn::BitCast(d, word(kSmallestNormal));
    const Words denormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Or(moved, word(kSmallestNormal))), one));
    Words result = hn::IfThenElse(above(word(1u << kFractionBits), magnitude), denormal, normal);
    if constexpr (kHasInfinity) {
      result = hn::IfThenElse(above(magnitude, word(kLargest)), hn::Or(moved, word(kInfinityBits)), result);
    } else {
      result = hn::IfThenElse(hn::Eq(magnitude, word(0x7F)), word(0x7FC00000), result);
    }
    return hn::BitCast(d, hn::Or(result, sign));
  }
  // Rounds to nearest even. Added to a number (the anchor) whose last bit weighs as much as the
  // result's, the magnitude is rounded by the addition, and what the sum's bits have grown by is the
  // result's fraction with its leading one. The power of two of the magnitude, or of the smallest normal
  // number for what is below it, gives the anchor and the exponent.
  HWY_INLINE Words narrow_bits(Floats value) const {
    const Words bits = hn::BitCast(du, value);
    const Words sign = hn::And(hn::ShiftRight<24>(bits), word(0x80));
    const Words unsaturated = hn::And(bits, word(0x7FFFFFFF));
    const Words magnitude = least(unsaturated, word(kLargestBits));
    const Words power = most(hn::And(magnitude, word(kInfinityBits)), word(kSmallestNormal));
    const Words anchor = hn::Add(power, word(static_cast<uint32_t>(kShift) << 23));
    const Words sum = hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, anchor)));
    const Words exponent = hn::Sub(hn::ShiftRight<kShift>(power), word(kSmallestNormal >> kShift));
    Words result = hn::Add(hn::Sub(sum, anchor), exponent);
    if constexpr (kHasInfinity) {
      result = hn::IfThenElse(hn::Eq(unsaturated, word(kInfinityBits)), word(0x7C), result);
    }
    const Words is_nan = hn::VecFromMask(du, above(unsaturated, word(kInfinityBits)));
    return hn::Or(sign, hn::Or(result, hn::And(is_nan, word(0x7F))));
  }

 private:
  // Comparisons of words below 2^31.
  HWY_INLINE auto above(Words a, Words b) const {
    const Signed di;
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, a), hn::BitCast(di, b)));
  }
  HWY_INLINE Words least(Words a, Words b) const {
    const Signed di;
    return hn::BitCast(du, hn::Min(hn::BitCast(di, a), hn::BitCast(di, b)));
  }
  HWY_INLINE Words most(Words a, Words b) const {
    const Signed di;
    return hn::BitCast(du, hn::Max(hn::BitCast(di, a), hn::BitCast(di, b)));
  }
};
using Float8E4M3Format = Float8Format<4>;
using Float8E5M2Format = Float8Format<5>;

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace hdt::collectives
HWY_AFTER_NAMESPACE();

#endif  // the toggle
