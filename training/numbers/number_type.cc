// number_type.cc: conversions between the types of numbers.
#include "training/numbers/number_type.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

namespace hdt::training {

const char* number_type_name(NumberType type) {
  switch (type) {
    case NumberType::kBFloat16:
      return "bf16";
    case NumberType::kFloat16:
      return "fp16";
    case NumberType::kFloat64:
      return "fp64";
    case NumberType::kFloat32:
      break;
  }
  return "fp32";
}

std::optional<NumberType> number_type_of(std::string_view name) {
  for (const NumberType type : kNumberTypes) {
    if (name == number_type_name(type)) return type;
  }
  return std::nullopt;
}

size_t bytes_of(NumberType type) {
  switch (type) {
    case NumberType::kBFloat16:
    case NumberType::kFloat16:
      return sizeof(uint16_t);
    case NumberType::kFloat64:
      return sizeof(double);
    case NumberType::kFloat32:
      break;
  }
  return sizeof(float);
}

// Numbers below the smallest normal one, 2^-14, are multiples of 2^-24. Adding a float whose last digit has
// that weight rounds there, to even as the processor does.
Float16::Float16(float value) {
  const auto whole = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((whole >> 16) & 0x8000U);
  const uint32_t magnitude = whole & 0x7FFFFFFFU;
  constexpr uint32_t kInfinity = 0x7F800000U;
  constexpr uint32_t kTooLarge = 0x477FF000U;  // 65520, halfway to what would be the next number
  constexpr uint32_t kNormal = 0x38800000U;    // 2^-14
  if (magnitude > kInfinity) {
    bits = sign | 0x7E00U;
  } else if (magnitude >= kTooLarge) {
    bits = sign | 0x7C00U;
  } else if (magnitude < kNormal) {
    const auto rounded = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F);
    bits = static_cast<uint16_t>(sign | (rounded - std::bit_cast<uint32_t>(0.5F)));
  } else {
    // The exponents count from -127 there and from -15 here.
    const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23);
    bits = static_cast<uint16_t>(sign | (rounded >> 13));
  }
}

Float16::operator float() const {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {  // zero, and numbers below the smallest normal one
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  // All ones: infinity and nan.
  const uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

TypedMemory plain_memory(NumberType type, size_t elements) {
  return {type, elements, {new std::byte[elements * bytes_of(type)](), std::default_delete<std::byte[]>()}};
}

void throw_wrong_type(NumberType is, NumberType wanted) {
  throw std::logic_error(fmt::format("memory of {} elements was used as memory of {} elements",
                                     number_type_name(is), number_type_name(wanted)));
}

namespace {

template <Element T>
ComputedAs<T> widened(T value) {
  return static_cast<ComputedAs<T>>(value);
}

}  // namespace

void convert(ConstTypedSpan from, TypedSpan to) {
  if (from.size() != to.size()) {
    throw std::logic_error(fmt::format("{} elements were to become {}", from.size(), to.size()));
  }
  if (from.empty()) return;
  if (from.type() == to.type()) {
    std::memmove(to.data(), from.data(), from.bytes().size());
    return;
  }
  with_elements(from, [&](auto source) {
    with_elements(to, [&](auto target) {
      using Target = typename decltype(target)::value_type;
      using Between = ComputedAs<Target>;  // so that fp64 reaches fp64 without loss
      for (size_t i = 0; i < source.size(); ++i)
        target[i] = static_cast<Target>(static_cast<Between>(widened(source[i])));
    });
  });
}

}  // namespace hdt::training
