// number_type.cc: conversions between the types of numbers.
#include "training/engine/number_type.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

namespace hdt::training {

const char* number_type_name(NumberType type) { return type == NumberType::kBFloat16 ? "bf16" : "fp32"; }

size_t bytes_of(NumberType type) { return type == NumberType::kBFloat16 ? sizeof(BFloat16) : sizeof(float); }

void throw_wrong_type(NumberType is, NumberType wanted) {
  throw std::logic_error(fmt::format("memory of {} elements was used as memory of {} elements",
                                     number_type_name(is), number_type_name(wanted)));
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
