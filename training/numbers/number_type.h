// number_type.h: the types of numbers that a model is trained in, and memory whose type is known at run time.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace hdt::training {

// A further type needs a C++ type below, a case in number_type.cc, and its counterparts in libhdt
// (hdt_messenger.cc) and torch (torch_stage.cc).
enum class NumberType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64 };
inline constexpr NumberType kNumberTypes[] = {NumberType::kFloat32, NumberType::kBFloat16,
                                              NumberType::kFloat16, NumberType::kFloat64};

// "fp32", "bf16", "fp16", "fp64".
const char* number_type_name(NumberType type);
// The type of that name; nothing: there is none.
std::optional<NumberType> number_type_of(std::string_view name);
size_t bytes_of(NumberType type);
// The type in which the optimizer keeps its states, and in which it updates: fp64 for fp64, fp32 for the
// rest.
constexpr NumberType state_type_of(NumberType type) {
  return type == NumberType::kFloat64 ? NumberType::kFloat64 : NumberType::kFloat32;
}

// The types of numbers of one training run.
struct NumberTypes {
  NumberType parameters = NumberType::kFloat32;  // and activations
  NumberType gradients = NumberType::kFloat32;   // in memory, where they are added up
  bool operator==(const NumberTypes&) const = default;
};
// Gradients are of the parameters' type, or of the optimizer's states'.
constexpr bool go_together(const NumberTypes& types) {
  return types.gradients == types.parameters || types.gradients == state_type_of(types.parameters);
}

// The upper 16 bits of a float.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  // Rounds to nearest, ties to even. A nan stays one, whichever bits are cut off.
  explicit BFloat16(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = whole + 0x7FFFU + ((whole >> 16) & 1U);
    bits = static_cast<uint16_t>((std::isnan(value) ? whole | 0x400000U : rounded) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of mantissa.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  // Rounds to nearest, ties to even; from 65520 on to infinity. A nan stays one.
  explicit Float16(float value);
  explicit operator float() const;
};

template <typename T>
struct NumberTypeOf;
template <>
struct NumberTypeOf<float> : std::integral_constant<NumberType, NumberType::kFloat32> {};
template <>
struct NumberTypeOf<BFloat16> : std::integral_constant<NumberType, NumberType::kBFloat16> {};
template <>
struct NumberTypeOf<Float16> : std::integral_constant<NumberType, NumberType::kFloat16> {};
template <>
struct NumberTypeOf<double> : std::integral_constant<NumberType, NumberType::kFloat64> {};

template <typename T>
concept Element = requires {
  NumberTypeOf<T>::value;
};

// A pointer to the elements of a range, as a span of `Byte` (std::byte or const std::byte) keeps it.
template <typename Range, typename Byte>
using ElementPointer = std::conditional_t<std::is_const_v<Byte>, const std::ranges::range_value_t<Range>*,
                                          std::ranges::range_value_t<Range>*>;
// A range that a span of `Byte` can be of: one that may be written, or any where the span is only read.
template <typename Range, typename Byte>
concept ElementsFor = std::ranges::contiguous_range<Range> && Element<std::ranges::range_value_t<Range>> &&
    requires(Range& range, ElementPointer<Range, Byte>& pointer) {
  pointer = std::ranges::data(range);
};
// The bytes of a span that another one of `Byte`, which only reads, can be made of.
template <typename Other, typename Byte>
concept WritableFor = std::is_const_v<Byte> && std::is_same_v<Other, std::byte>;

// Throws std::logic_error: memory of type `is` was used as `wanted`.
[[noreturn]] void throw_wrong_type(NumberType is, NumberType wanted);

// As std::span, with a type of elements that is known at run time. `Byte` is std::byte, or const std::byte
// for memory that is only read. It owns nothing.
template <typename Byte>
class BasicTypedSpan {
 public:
  template <typename T>
  using Like = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  BasicTypedSpan() = default;
  BasicTypedSpan(NumberType type, Byte* data, size_t elements)
      : data_(data), elements_(elements), type_(type) {}
  // Elements of a C++ type: a vector, an array, a std::span.
  template <ElementsFor<Byte> Range>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): as std::span's
  BasicTypedSpan(Range&& range)
      : data_(reinterpret_cast<Byte*>(std::ranges::data(range))),
        elements_(std::ranges::size(range)),
        type_(NumberTypeOf<std::ranges::range_value_t<Range>>::value) {}
  // Memory that may be written can be read.
  template <WritableFor<Byte> Other>
  // NOLINTNEXTLINE(google-explicit-constructor)
  BasicTypedSpan(const BasicTypedSpan<Other>& other)
      : data_(other.data()), elements_(other.size()), type_(other.type()) {}

  NumberType type() const { return type_; }
  Byte* data() const { return data_; }
  size_t size() const { return elements_; }  // in elements
  bool empty() const { return elements_ == 0; }
  std::span<Byte> bytes() const { return {data_, elements_ * bytes_of(type_)}; }
  // `count` elements from `first` on. Both must lie within the span.
  BasicTypedSpan subspan(size_t first, size_t count) const {
    return {type_, data_ + first * bytes_of(type_), count};
  }
  // The elements, of which the type is known to be T; std::logic_error if it is another one.
  template <Element T>
  std::span<Like<T>> as() const {
    if (NumberTypeOf<T>::value != type_ && !empty()) throw_wrong_type(type_, NumberTypeOf<T>::value);
    return {reinterpret_cast<Like<T>*>(data_), elements_};
  }

 private:
  Byte* data_ = nullptr;
  size_t elements_ = 0;
  NumberType type_ = NumberType::kFloat32;
};
using TypedSpan = BasicTypedSpan<std::byte>;
using ConstTypedSpan = BasicTypedSpan<const std::byte>;

// Calls work(elements), where `elements` is the std::span of the values' C++ type.
template <typename Byte, typename Work>
decltype(auto) with_elements(BasicTypedSpan<Byte> values, const Work& work) {
  switch (values.type()) {
    case NumberType::kBFloat16:
      return work(values.template as<BFloat16>());
    case NumberType::kFloat16:
      return work(values.template as<Float16>());
    case NumberType::kFloat64:
      return work(values.template as<double>());
    case NumberType::kFloat32:
      break;
  }
  return work(values.template as<float>());
}

// The type that computes with elements of type T without losing digits: double for double, float for the
// rest.
template <Element T>
using ComputedAs = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Copies `from` to `to`, which has as many elements, and rounds to nearest (ties to even) where `to` has
// fewer digits. From fp64 to one of the types of 16 bits it rounds to fp32 first.
void convert(ConstTypedSpan from, TypedSpan to);

// Memory for parameters, gradients, activations and states, with the function that frees it. A default-made
// one is empty.
class TypedMemory {
 public:
  using Bytes = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;

  TypedMemory() = default;
  TypedMemory(NumberType type, size_t elements, Bytes bytes)
      : bytes_(std::move(bytes)), elements_(elements), type_(type) {}
  TypedSpan span() const { return {type_, bytes_.get(), elements_}; }

 private:
  Bytes bytes_;
  size_t elements_ = 0;
  NumberType type_ = NumberType::kFloat32;
};

// Zeroed memory of the C++ library.
TypedMemory plain_memory(NumberType type, size_t elements);

}  // namespace hdt::training
