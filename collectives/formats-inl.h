// formats-inl.h: how each element type is loaded into the lanes it is computed in, and stored back. Compiled
// once per SIMD target (see kernels.cc); integers, fp32 and fp64 are computed as they are, fp16 and bf16 in
// fp32 lanes.
#if defined(HDT_COLLECTIVES_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HDT_COLLECTIVES_FORMATS_INL_H_
#undef HDT_COLLECTIVES_FORMATS_INL_H_
#else
#define HDT_COLLECTIVES_FORMATS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hdt::collectives {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct PlainFormat {
  using Stored = T;
  using Lane = T;
  hn::ScalableTag<T> d;
  size_t lanes() const { return hn::Lanes(d); }
  auto load(const T* from) const { return hn::LoadU(d, from); }
  template <class V>
  void store(V value, T* to) const {
    hn::StoreU(value, d, to);
  }
};

// The 16-bit formats: Derived has widen(u32 lanes holding the 16 bits) and narrow(fp32 lanes), both on bits.
template <class Derived>
struct NarrowFormat {
  using Stored = uint16_t;
  using Lane = float;
  hn::ScalableTag<float> d;
  hn::RebindToUnsigned<hn::ScalableTag<float>> du32;
  hn::Rebind<uint16_t, hn::ScalableTag<float>> du16;
  size_t lanes() const { return hn::Lanes(d); }
  auto load(const uint16_t* from) const {
    return static_cast<const Derived*>(this)->widen(hn::LoadU(du16, from));
  }
  template <class V>
  void store(V value, uint16_t* to) const {
    hn::StoreU(static_cast<const Derived*>(this)->narrow(value), du16, to);
  }
  // Each u32 lane holds a value below 65,536. (DemoteTo saturates from signed lanes only.)
  template <class V>
  auto low_halves(V bits) const {
    const hn::RebindToSigned<decltype(du32)> di32;
    return hn::DemoteTo(du16, hn::BitCast(di32, bits));
  }
};

struct BFloat16Format : NarrowFormat<BFloat16Format> {
  template <class V>
  auto widen(V bits) const {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
  }
  // To nearest even: add half of the last kept bit's weight, less one if that bit is even. NaN would be
  // rounded to infinity, or its sign turned, so it is cut and made quiet instead.
  template <class V>
  auto narrow(V value) const {
    const auto bits = hn::BitCast(du32, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(du32, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFF))));
    const auto quiet = hn::Or(upper, hn::Set(du32, 0x40));
    const auto is_number = hn::RebindMask(du32, hn::Eq(value, value));
    return low_halves(hn::IfThenElse(is_number, rounded, quiet));
  }
};

// Conversion instructions where every CPU of the target has them (F16C comes with AVX2), else on bits.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
struct Float16Format : NarrowFormat<Float16Format> {
  hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> df16;
  template <class V>
  auto widen(V bits) const {
    return hn::PromoteTo(d, hn::BitCast(df16, bits));
  }
  template <class V>
  auto narrow(V value) const {
    return hn::BitCast(du16, hn::DemoteTo(df16, value));
  }
};
#else
struct Float16Format : NarrowFormat<Float16Format> {
  // Sign apart, the bits moved to binary32's place are the value times 2^-112, denormals included; that
  // undone by a multiplication, only the all-ones exponent of infinity and NaN is left to be put in.
  template <class V>
  auto widen(V bits16) const {
    const auto bits = hn::PromoteTo(du32, bits16);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du32, 0x8000)));
    const auto moved = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du32, 0x7FFF)));
    const auto scaled = hn::BitCast(du32, hn::Mul(hn::BitCast(d, moved), hn::Set(d, 0x1p112f)));
    const auto special = hn::Gt(moved, hn::Set(du32, (0x7C00u << 13) - 1));
    const auto exponent = hn::IfThenElseZero(special, hn::Set(du32, 0x7F800000));
    return hn::BitCast(d, hn::Or(sign, hn::Or(scaled, exponent)));
  }
  // To nearest even, by magnitude: below 2^-14 the sum with 0.5 puts the denormal's bits (in units of 2^-24,
  // rounded by the addition) at the low end; above, as for bf16, with the exponent's bias moved; from 65,520
  // on infinity.
  template <class V>
  auto narrow(V value) const {
    const auto bits = hn::BitCast(du32, value);
    const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du32, 0x80000000u)));
    const auto magnitude = hn::And(bits, hn::Set(du32, 0x7FFFFFFF));
    const auto half = hn::Set(du32, 0x3F000000);
    const auto denormal =
        hn::Sub(hn::BitCast(du32, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 1));
    const auto bias = hn::Set(du32, 0xFFFu - (112u << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(bias, odd)));
    const auto quiet =
        hn::Or(hn::Set(du32, 0x7E00), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 0x3FF)));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du32, 0x38800000)), denormal, normal);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du32, 0x477FEFFF)), hn::Set(du32, 0x7C00), result);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du32, 0x7F800000)), quiet, result);
    return low_halves(hn::Or(result, sign));
  }
};
#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace hdt::collectives
HWY_AFTER_NAMESPACE();

#endif  // the toggle
