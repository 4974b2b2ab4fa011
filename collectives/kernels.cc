// kernels.cc: the arithmetic of kernels.h. Highway compiles the part between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once for every SIMD target of this architecture (by including this file again),
// and HWY_DYNAMIC_DISPATCH calls the best one for the CPU.
//
// A kernel is put together from three parts: a format (formats-inl.h: how elements are loaded and
// stored), an operation (Sum, ...) and a loop (combine_vectors, transform). for_type() picks the format.
#include "collectives/kernels.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

// Left out are: vectors of SVE and RVV, which have no size at compile time, so they could not be parts
// of a Value (formats-inl.h); and SSE4, as no machine with an accelerator has it and not AVX2, and each
// target takes the compiler long.
#ifdef HDT_FEW_SIMD_TARGETS  // for builds with sanitizers, which take minutes for each
#define HDT_LEFT_OUT (HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HDT_LEFT_OUT HWY_SSE4
#endif
#define HWY_DISABLED_TARGETS (HDT_LEFT_OUT | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#define HWY_WANT_AVX3_DL  // for fp8 (float8_sum-inl.h)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels.cc"
#include "hwy/foreach_target.h"  // first: it includes this file again, once per target

#include "collectives/formats-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hdt::collectives {
namespace HWY_NAMESPACE {

// The operations, on vectors of any lane type.
struct Sum {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class V>
  V operator()(V a, V b) const {
    if constexpr (sizeof(hn::TFromV<V>) == 1) {
      return bytes(a, b);
    } else {
      return hn::Mul(a, b);
    }
  }

 private:
  // No target multiplies bytes. So the bytes at even and at odd places are multiplied apart, in 16-bit
  // lanes; the lower byte of each product is the result.
  template <class V>
  static V bytes(V a, V b) {
    const hn::DFromV<V> d;
    const hn::RepartitionToWide<hn::RebindToUnsigned<decltype(d)>> dw;
    const auto wide_a = hn::BitCast(dw, a), wide_b = hn::BitCast(dw, b);
    const auto even = hn::And(hn::Mul(wide_a, wide_b), hn::Set(dw, 0xFF));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(wide_a), hn::ShiftRight<8>(wide_b)));
    return hn::BitCast(d, hn::Or(even, odd));
  }
};
struct Minimum {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
};
struct Maximum {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

struct BitwiseAnd {
  template <class V>
  V operator()(V a, V b) const {
    return hn::And(a, b);
  }
};
struct BitwiseOr {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Or(a, b);
  }
};
struct BitwiseXor {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Xor(a, b);
  }
};

// Conversions take so long that the processor, which looks ahead over a limited number of instructions,
// does not reach the next lines of memory. So lines are prefetched this many bytes ahead. Formats that
// are computed as they are stored are slowed down by prefetches.
constexpr size_t kAhead = 512;
constexpr size_t kLine = 64;  // bytes of a cache line
// True for formats that are computed in other lanes than they are stored in.
template <class Format>
inline constexpr bool kConverts = !std::is_same_v<typename Format::Raw, typename Format::Value>;

// True for formats with a sum() of their own: the same bits, sooner.
template <class Format, typename = void>
inline constexpr bool kHasSum = false;
template <class Format>
inline constexpr bool kHasSum<Format, std::void_t<decltype(&Format::sum)>> = true;

// Element `index` of an array of unknown alignment. Not to be dereferenced, only for loads and stores
// that need no alignment.
template <typename T>
const T* elements(const void* base, size_t index) {
  return reinterpret_cast<const T*>(static_cast<const std::byte*>(base) + index * sizeof(T));
}
template <typename T>
T* elements(void* base, size_t index) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + index * sizeof(T));
}

template <class Format>
using Tag = hn::ScalableTag<typename Format::Stored>;

// Fewer elements than a vector has go through padded copies, so that they take the very same arithmetic.
template <class Format>
auto load_part(const void* from, size_t begin, size_t count) {
  using T = typename Format::Stored;
  T padded[hn::MaxLanes(Tag<Format>())] = {};
  std::memcpy(padded, elements<T>(from, begin), count * sizeof(T));
  return Format{}.widen(hn::LoadU(Tag<Format>(), padded));
}
template <class Format>
void store_part(typename Format::Raw raw, void* to, size_t begin, size_t count) {
  using T = typename Format::Stored;
  T padded[hn::MaxLanes(Tag<Format>())];
  hn::StoreU(raw, Tag<Format>(), padded);
  std::memcpy(elements<T>(to, begin), padded, count * sizeof(T));
}

using Sources = std::span<const void* const>;
using Destinations = std::span<void* const>;

// Two operands, the usual case: by the format's own sum, if it has one.
template <class Format, class Op>
HWY_INLINE typename Format::Raw combine_two(typename Format::Raw a, typename Format::Raw b) {
  const Format format{};
  if constexpr (kHasSum<Format> && std::is_same_v<Op, Sum>) {
    return format.sum(a, b);
  } else {
    return format.narrow(format.map(Op(), format.widen(a), format.widen(b)));
  }
}

// Up to one vector of elements from `begin` on, for the ends that fill no vector.
template <class Format, class Op>
void combine_part(Sources sources, Destinations destinations, size_t begin, size_t count) {
  if (count == 0) return;
  const Format format{};
  auto value = load_part<Format>(sources[0], begin, count);
  for (size_t k = 1; k < sources.size(); ++k) {
    value = format.map(Op(), value, load_part<Format>(sources[k], begin, count));
  }
  const auto raw = format.narrow(value);
  for (void* const destination : destinations) store_part<Format>(raw, destination, begin, count);
}

// Combines elements [begin, count) as far as they fill whole vectors, and returns the element where it
// stopped. kStream: destinations are aligned, and stores go past the caches.
template <class Format, class Op, bool kStream>
size_t combine_vectors(Sources sources, Destinations destinations, size_t begin, size_t count) {
  using T = typename Format::Stored;
  const Format format{};
  const Op op;
  const Tag<Format> d;
  const size_t lanes = hn::Lanes(d);
  const auto load = [&](size_t k, size_t i) {
    return format.widen(hn::LoadU(d, elements<T>(sources[k], i)));
  };
  const auto store = [&](typename Format::Raw raw, size_t k, size_t i) {
    if constexpr (kStream) {
      hn::Stream(raw, d, elements<T>(destinations[k], i));
    } else {
      hn::StoreU(raw, d, elements<T>(destinations[k], i));
    }
  };
  size_t i = begin;
  // The usual case has loops of its own: two operands stay in registers, and formats that convert go
  // line by line with prefetches.
  if (sources.size() == 2 && destinations.size() <= 2) {
    const size_t last = destinations.size() - 1;
    const auto combine_at = [&](size_t at) HWY_ATTR __attribute__((always_inline)) {
      const auto a = hn::LoadU(d, elements<T>(sources[0], at)), b = hn::LoadU(d, elements<T>(sources[1], at));
      const auto raw = combine_two<Format, Op>(a, b);
      store(raw, 0, at);
      if (last != 0) store(raw, 1, at);
    };
    if constexpr (kConverts<Format>) {
      const size_t line = std::max(lanes, kLine / sizeof(T));
      for (; i + line <= count; i += line) {
        for (const void* const source : sources) hwy::Prefetch(elements<T>(source, i) + kAhead / sizeof(T));
        for (size_t k = 0; k < line; k += lanes) combine_at(i + k);
      }
    }
    for (; i + lanes <= count; i += lanes) combine_at(i);
    return i;
  }
  // Any number of operands: the value stays wide until all are combined, so it is rounded once.
  for (; i + lanes <= count; i += lanes) {
    auto value = load(0, i);
    for (size_t k = 1; k < sources.size(); ++k) value = format.map(op, value, load(k, i));
    const auto raw = format.narrow(value);
    for (size_t k = 0; k < destinations.size(); ++k) store(raw, k, i);
  }
  return i;
}

// The number of bytes before the first place where all destinations are aligned for streaming. Nothing
// if there is no such place, or if a destination is a source, whose lines are in the caches anyway.
template <class Format>
std::optional<size_t> bytes_to_alignment(Sources sources, Destinations destinations) {
  const size_t vector = hn::Lanes(Tag<Format>()) * sizeof(typename Format::Stored);
  const auto before = [vector](const void* p) { return -reinterpret_cast<uintptr_t>(p) % vector; };
  const size_t bytes = before(destinations[0]);
  if (bytes % sizeof(typename Format::Stored) != 0) return std::nullopt;
  for (const void* const destination : destinations) {
    const bool is_source = std::find(sources.begin(), sources.end(), destination) != sources.end();
    if (is_source || before(destination) != bytes) return std::nullopt;
  }
  return bytes;
}

// Head up to the alignment (if streaming), whole vectors, rest.
template <class Format, class Op>
void combine(Sources sources, Destinations destinations, size_t count, Stores stores) {
  size_t done = 0;
  const auto head =
      stores == Stores::kStreaming ? bytes_to_alignment<Format>(sources, destinations) : std::nullopt;
  if (head) {
    done = std::min(count, *head / sizeof(typename Format::Stored));
    combine_part<Format, Op>(sources, destinations, 0, done);
    done = combine_vectors<Format, Op, true>(sources, destinations, done, count);
    // Streamed stores are weakly ordered: they must be out before the result is announced to others.
    hwy::FlushStream();
  } else {
    done = combine_vectors<Format, Op, false>(sources, destinations, done, count);
  }
  combine_part<Format, Op>(sources, destinations, done, count - done);
}

// dst[i] = f(src[i]), where f works on vectors of the lanes that the format is computed in.
template <class Format, class F>
void transform(const void* src, void* dst, size_t count, F f) {
  using T = typename Format::Stored;
  const Format format{};
  const Tag<Format> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = format.widen(hn::LoadU(d, elements<T>(src, i)));
    hn::StoreU(format.narrow(format.map(f, value)), d, elements<T>(dst, i));
  }
  if (i == count) return;
  store_part<Format>(format.narrow(format.map(f, load_part<Format>(src, i, count - i))), dst, i, count - i);
}

// SIMD has no integer division, so elements are divided one by one. They go through memcpy, because they
// may be misaligned.
template <typename T>
void divide_integers(const void* src, void* dst, size_t count, int divisor) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, elements<T>(src, i), sizeof(T));
    // 64 bits, as a narrow type may not hold the divisor.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    std::memcpy(elements<T>(dst, i), &value, sizeof(T));
  }
}

// The three kinds of work, each with a run<Format>() for for_type().
struct Reduction {
  ReduceOp op;
  Sources sources;
  Destinations destinations;
  size_t count;
  Stores stores;
  template <class Format>
  void run() const {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
      case ReduceOp::kPreMulSum:
        return combine<Format, Sum>(sources, destinations, count, stores);
      case ReduceOp::kProd:
        return combine<Format, Product>(sources, destinations, count, stores);
      case ReduceOp::kMin:
        return combine<Format, Minimum>(sources, destinations, count, stores);
      case ReduceOp::kMax:
        return combine<Format, Maximum>(sources, destinations, count, stores);
      case ReduceOp::kBand:
        return bits<Format, BitwiseAnd>();
      case ReduceOp::kBor:
        return bits<Format, BitwiseOr>();
      case ReduceOp::kBxor:
        return bits<Format, BitwiseXor>();
    }
  }

 private:
  // reduce() asks for bytes only, so that the compiler makes three kernels and not three for every format.
  template <class Format, class Op>
  void bits() const {
    if constexpr (std::is_same_v<Format, PlainFormat<uint8_t>>) {
      combine<Format, Op>(sources, destinations, count, stores);
    } else {
      HWY_ABORT("a bitwise reduction of other elements than bytes");
    }
  }
};

struct Division {
  const void* src;
  void* dst;
  size_t count;
  int divisor;
  template <class Format>
  void run() const {
    using T = typename Format::Stored;
    if constexpr (std::is_same_v<Format, PlainFormat<T>> && std::is_integral_v<T>) {
      divide_integers<T>(src, dst, count, divisor);
    } else {
      transform<Format>(src, dst, count, [by = divisor](auto value) {
        const hn::DFromV<decltype(value)> d;
        return hn::Div(value, hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(by)));
      });
    }
  }
};

struct Scaling {
  const void* scalar;
  const void* src;
  void* dst;
  size_t count;
  template <class Format>
  void run() const {
    using T = typename Format::Stored;
    T factor;
    std::memcpy(&factor, scalar, sizeof(T));
    // A vector of the factor in the lanes that the format is computed in: all lanes and all parts are
    // the same.
    const auto factors = Format{}.widen(hn::Set(Tag<Format>(), factor));
    if constexpr (std::is_same_v<Format, PlainFormat<T>>) {
      transform<Format>(src, dst, count, [factors](auto value) { return Product()(value, factors); });
    } else {
      transform<Format>(src, dst, count, [&](auto value) { return Product()(value, factors.part[0]); });
    }
  }
};

// Runs the work with the format of the element type.
template <class Work>
void for_type(DataType type, const Work& work) {
  switch (type) {
    case DataType::kInt32:
      return work.template run<PlainFormat<int32_t>>();
    case DataType::kInt64:
      return work.template run<PlainFormat<int64_t>>();
    case DataType::kFloat16:
      return work.template run<Float16Format>();
    case DataType::kBFloat16:
      return work.template run<BFloat16Format>();
    case DataType::kFloat32:
      return work.template run<PlainFormat<float>>();
    case DataType::kFloat64:
      return work.template run<PlainFormat<double>>();
    case DataType::kInt8:
      return work.template run<PlainFormat<int8_t>>();
    case DataType::kUint8:
      return work.template run<PlainFormat<uint8_t>>();
    case DataType::kInt16:
      return work.template run<PlainFormat<int16_t>>();
    case DataType::kUint16:
      return work.template run<PlainFormat<uint16_t>>();
    case DataType::kUint32:
      return work.template run<PlainFormat<uint32_t>>();
    case DataType::kUint64:
      return work.template run<PlainFormat<uint64_t>>();
    case DataType::kFloat8E4M3:
      return work.template run<Float8E4M3Format>();
    case DataType::kFloat8E5M2:
      return work.template run<Float8E5M2Format>();
  }
}

// The entries for one target, which HWY_EXPORT collects in tables.
void reduce_target(DataType type, ReduceOp op, Sources sources, Destinations destinations, size_t count,
                   Stores stores) {
  for_type(type, Reduction{op, sources, destinations, count, stores});
}
void divide_target(DataType type, const void* src, void* dst, size_t count, int divisor) {
  for_type(type, Division{src, dst, count, divisor});
}
void scale_target(DataType type, const void* scalar, const void* src, void* dst, size_t count) {
  for_type(type, Scaling{scalar, src, dst, count});
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace hdt::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hdt::collectives {

HWY_EXPORT(reduce_target);
HWY_EXPORT(divide_target);
HWY_EXPORT(scale_target);

void reduce(DataType type, ReduceOp op, std::span<const void* const> sources,
            std::span<void* const> destinations, size_t count, Stores stores) {
  if (count == 0) return;
  // One source is a copy. A streaming copy goes through the kernel as bytes: nothing is combined, so
  // every bit stays, also of a NaN.
  if (sources.size() == 1) {
    if (stores == Stores::kCached) {
      for (void* const destination : destinations) {
        if (destination != sources[0]) std::memcpy(destination, sources[0], count * type_size(type));
      }
      return;
    }
    count *= type_size(type);
    type = DataType::kUint8;    // as bytes: nothing is combined, so every bit stays
  } else if (is_bitwise(op)) {  // bits know no type, so one kernel, that of bytes, serves all of them
    count *= type_size(type);
    type = DataType::kUint8;
  }
  HWY_DYNAMIC_DISPATCH(reduce_target)(type, op, sources, destinations, count, stores);
}

void copy_divided(DataType type, const void* src, void* dst, size_t count, int divisor) {
  if (count == 0) return;
  if (divisor == 1) {
    if (dst != src) std::memcpy(dst, src, count * type_size(type));
    return;
  }
  HWY_DYNAMIC_DISPATCH(divide_target)(type, src, dst, count, divisor);
}

void scale(DataType type, const void* scalar, const void* src, void* dst, size_t count) {
  if (count == 0) return;
  HWY_DYNAMIC_DISPATCH(scale_target)(type, scalar, src, dst, count);
}

}  // namespace hdt::collectives
#endif  // HWY_ONCE
