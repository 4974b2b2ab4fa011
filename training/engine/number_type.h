// number_type.h: the types of numbers that a model is trained in, and memory whose type is known at run time.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

namespace hdt::training {

// A further type needs a C++ type below, a case in number_type.cc, and its counterparts in libhdt
// (hdt_messenger.cc) and torch (torch_stage.cc).
enum class NumberType : uint8_t { kFloat32, kBFloat16 };

// "fp32", "bf16".
const char* number_type_name(NumberType type);
size_t bytes_of(NumberType type);

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

template <typename T>
struct NumberTypeOf;
template <>
struct NumberTypeOf<float> : std::integral_constant<NumberType, NumberType::kFloat32> {};
template <>
struct NumberTypeOf<BFloat16> : std::integral_constant<NumberType, NumberType::kBFloat16> {};

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
  if (values.type() == NumberType::kBFloat16) return work(values.template as<BFloat16>());
  return work(values.template as<float>());
}

// Copies `from` to `to`, which has as many elements, and rounds to nearest (ties to even) where `to` has
// fewer digits.
void convert(ConstTypedSpan from, TypedSpan to);

// Memory for parameters, gradients and activations, with the function that frees it. A default-made one is
// empty.
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

}  // namespace hdt::training
