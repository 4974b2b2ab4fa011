// kernels.cc: reduce and copy_divided, compiled for every SIMD target that Highway knows on this
// architecture; the best one for the CPU is chosen at run time.
#include "collectives/kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels.cc"
#include "hwy/foreach_target.h"  // first: it includes this file again, once per target

#include "collectives/formats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hdt::collectives {
namespace HWY_NAMESPACE {

struct Sum {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class V>
  V operator()(V a, V b) const {
    return hn::Mul(a, b);
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

template <typename T>
const T* elements(const void* base, size_t index) {
  return reinterpret_cast<const T*>(static_cast<const std::byte*>(base) + index * sizeof(T));
}
template <typename T>
T* elements(void* base, size_t index) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + index * sizeof(T));
}

// Elements [begin, count) of all sources, whole vectors only; returns where it stopped.
template <class Format, class Op>
size_t combine_vectors(std::span<const void* const> sources, void* dst, size_t begin, size_t count) {
  using T = typename Format::Stored;
  const Format format;
  const Op op;
  const size_t lanes = format.lanes();
  size_t i = begin;
  if (sources.size() == 2) {
    const void* const a = sources[0];
    const void* const b = sources[1];
    for (; i + lanes <= count; i += lanes) {
      format.store(op(format.load(elements<T>(a, i)), format.load(elements<T>(b, i))), elements<T>(dst, i));
    }
    return i;
  }
  for (; i + lanes <= count; i += lanes) {
    auto value = format.load(elements<T>(sources[0], i));
    for (size_t k = 1; k < sources.size(); ++k) value = op(value, format.load(elements<T>(sources[k], i)));
    format.store(value, elements<T>(dst, i));
  }
  return i;
}

// The rest that fills no vector goes through padded copies, pair by pair of partial lanes, so that it takes
// the very same arithmetic. The accumulator stays in lanes: 16-bit formats round once here, too.
template <class Format, class Op>
void combine(std::span<const void* const> sources, void* dst, size_t count) {
  using T = typename Format::Stored;
  const size_t done = combine_vectors<Format, Op>(sources, dst, 0, count);
  if (done == count) return;
  const Format format;
  const Op op;
  constexpr size_t kMaxLanes = hn::MaxLanes(hn::ScalableTag<typename Format::Lane>());
  const size_t bytes = (count - done) * sizeof(T);
  T padded[kMaxLanes] = {};
  std::memcpy(padded, elements<T>(sources[0], done), bytes);
  auto value = format.load(padded);
  for (size_t k = 1; k < sources.size(); ++k) {
    std::memcpy(padded, elements<T>(sources[k], done), bytes);
    value = op(value, format.load(padded));
  }
  format.store(value, padded);
  std::memcpy(elements<T>(dst, done), padded, bytes);
}

template <class Format>
void combine_op(ReduceOp op, std::span<const void* const> sources, void* dst, size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return combine<Format, Sum>(sources, dst, count);
    case ReduceOp::kProd:
      return combine<Format, Product>(sources, dst, count);
    case ReduceOp::kMin:
      return combine<Format, Minimum>(sources, dst, count);
    case ReduceOp::kMax:
      return combine<Format, Maximum>(sources, dst, count);
  }
}

void ReduceTarget(DataType type, ReduceOp op, std::span<const void* const> sources, void* dst, size_t count) {
  switch (type) {
    case DataType::kInt32:
      return combine_op<PlainFormat<int32_t>>(op, sources, dst, count);
    case DataType::kInt64:
      return combine_op<PlainFormat<int64_t>>(op, sources, dst, count);
    case DataType::kFloat16:
      return combine_op<Float16Format>(op, sources, dst, count);
    case DataType::kBFloat16:
      return combine_op<BFloat16Format>(op, sources, dst, count);
    case DataType::kFloat32:
      return combine_op<PlainFormat<float>>(op, sources, dst, count);
    case DataType::kFloat64:
      return combine_op<PlainFormat<double>>(op, sources, dst, count);
  }
}

template <class Format>
void divide_floats(const void* src, void* dst, size_t count, int divisor) {
  using T = typename Format::Stored;
  using Lane = typename Format::Lane;
  const Format format;
  const auto by = hn::Set(format.d, static_cast<Lane>(divisor));
  const size_t lanes = format.lanes();
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    format.store(hn::Div(format.load(elements<T>(src, i)), by), elements<T>(dst, i));
  }
  if (i == count) return;
  T padded[hn::MaxLanes(hn::ScalableTag<Lane>())] = {};
  std::memcpy(padded, elements<T>(src, i), (count - i) * sizeof(T));
  format.store(hn::Div(format.load(padded), by), padded);
  std::memcpy(elements<T>(dst, i), padded, (count - i) * sizeof(T));
}

// SIMD has no integer division; elements go through memcpy because they may be misaligned.
template <typename T>
void divide_integers(const void* src, void* dst, size_t count, int divisor) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, elements<T>(src, i), sizeof(T));
    value /= divisor;
    std::memcpy(elements<T>(dst, i), &value, sizeof(T));
  }
}

void DivideTarget(DataType type, const void* src, void* dst, size_t count, int divisor) {
  switch (type) {
    case DataType::kInt32:
      return divide_integers<int32_t>(src, dst, count, divisor);
    case DataType::kInt64:
      return divide_integers<int64_t>(src, dst, count, divisor);
    case DataType::kFloat16:
      return divide_floats<Float16Format>(src, dst, count, divisor);
    case DataType::kBFloat16:
      return divide_floats<BFloat16Format>(src, dst, count, divisor);
    case DataType::kFloat32:
      return divide_floats<PlainFormat<float>>(src, dst, count, divisor);
    case DataType::kFloat64:
      return divide_floats<PlainFormat<double>>(src, dst, count, divisor);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace hdt::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hdt::collectives {

HWY_EXPORT(ReduceTarget);
HWY_EXPORT(DivideTarget);

void reduce(DataType type, ReduceOp op, std::span<const void* const> sources, void* dst, size_t count) {
  if (count == 0) return;
  if (sources.size() == 1) {
    std::memcpy(dst, sources[0], count * type_size(type));
    return;
  }
  HWY_DYNAMIC_DISPATCH(ReduceTarget)(type, op, sources, dst, count);
}

void copy_divided(DataType type, const void* src, void* dst, size_t count, int divisor) {
  if (count == 0) return;
  if (divisor == 1) {
    if (dst != src) std::memcpy(dst, src, count * type_size(type));
    return;
  }
  HWY_DYNAMIC_DISPATCH(DivideTarget)(type, src, dst, count, divisor);
}

}  // namespace hdt::collectives
#endif  // HWY_ONCE
