// indexed_format.cc: the properties of the element types. The codes are those of Megatron's
// indexed_dataset.py.
#include "training/data/indexed_format.h"

#include <limits>

namespace hdt::training {

// The codes have no gaps.
std::optional<ElementType> element_type_from_code(uint8_t code) {
  if (code < static_cast<uint8_t>(ElementType::kUint8) || code > static_cast<uint8_t>(ElementType::kUint16)) {
    return std::nullopt;
  }
  return static_cast<ElementType>(code);
}

const char* element_type_name(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kInt8:
      return "int8";
    case ElementType::kInt16:
      return "int16";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kUint16:
      return "uint16";
  }
  return "unknown";
}

size_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
    case ElementType::kInt8:
      return 1;
    case ElementType::kInt16:
    case ElementType::kUint16:
      return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
  }
  return 0;
}

bool holds_tokens(ElementType type) { return type != ElementType::kFloat64 && type != ElementType::kFloat32; }

// Unsigned types and floats: 0.
int64_t element_minimum(ElementType type) {
  switch (type) {
    case ElementType::kInt8:
      return std::numeric_limits<int8_t>::min();
    case ElementType::kInt16:
      return std::numeric_limits<int16_t>::min();
    case ElementType::kInt32:
      return std::numeric_limits<int32_t>::min();
    case ElementType::kInt64:
      return std::numeric_limits<int64_t>::min();
    default:
      return 0;
  }
}

int64_t element_maximum(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return std::numeric_limits<uint8_t>::max();
    case ElementType::kInt8:
      return std::numeric_limits<int8_t>::max();
    case ElementType::kInt16:
      return std::numeric_limits<int16_t>::max();
    case ElementType::kUint16:
      return std::numeric_limits<uint16_t>::max();
    case ElementType::kInt32:
      return std::numeric_limits<int32_t>::max();
    case ElementType::kInt64:
      return std::numeric_limits<int64_t>::max();
    default:
      return 0;
  }
}

ElementType element_type_for_vocabulary(int64_t vocab_size) {
  return vocab_size - 1 <= element_maximum(ElementType::kUint16) ? ElementType::kUint16 : ElementType::kInt32;
}

std::string index_path(const std::string& prefix) { return prefix + ".idx"; }
std::string data_path(const std::string& prefix) { return prefix + ".bin"; }

}  // namespace hdt::training
