// element_type.cc: conversions between the types of numbers.
#include "training/engine/element_type.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

namespace hdt::training {

const char* element_type_name(ElementType type) { return type == ElementType::kBFloat16 ? "bf16" : "fp32"; }

size_t bytes_of(ElementType type) {
  return type == ElementType::kBFloat16 ? sizeof(BFloat16) : sizeof(float);
}

void throw_wrong_type(ElementType is, ElementType wanted) {
  throw std::logic_error(fmt::format("memory of {} elements was used as memory of {} elements",
                                     element_type_name(is), element_type_name(wanted)));
}

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
      for (size_t i = 0; i < source.size(); ++i)
        target[i] = static_cast<Target>(static_cast<float>(source[i]));
    });
  });
}

}  // namespace hdt::training
