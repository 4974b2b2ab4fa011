// safetensors_header.h: the header of a file in the safetensors format: which tensors it holds, of which type
// and shape, and where their bytes are. The file is 8 bytes with the length of the header (little endian),
// the header as JSON, filled up with spaces so that the data begins at a multiple of 8, then the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "training/numbers/number_type.h"

namespace hdt::training {

// The types of elements, by the format's names. HDT writes kF32; the others are read as bytes.
enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64
};
// "F32".
const char* dtype_name(Dtype dtype);
// Nothing for a name that is none.
std::optional<Dtype> dtype_from_name(std::string_view name);
// Bytes of an element.
uint64_t dtype_bytes(Dtype dtype);
// F32 for fp32, and so on; the way back gives nothing for types that no model is trained in.
Dtype dtype_of(NumberType type);
std::optional<NumberType> number_type_of(Dtype dtype);

// Limits of the format, and of names and dimensions here.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;
inline constexpr uint64_t kHeaderLengthBytes = 8;
inline constexpr size_t kMostNameBytes = 1024;
inline constexpr size_t kMostDimensions = 64;

using Shape = std::vector<uint64_t>;
// The product of a shape's sizes (1 for a scalar). Nothing where it is above 2^64 - 1, or where the bytes of
// so many elements would be.
std::optional<uint64_t> element_count(const Shape& shape, Dtype dtype);

// Where a tensor is.
struct TensorEntry {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  uint64_t elements = 0;
  uint64_t begin = 0;  // bytes, from the beginning of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__"
  uint64_t data_bytes = 0;                      // the sum of all tensors
};

// Whether a name may be that of a tensor: plain text (foreign_text.h) of 1 to kMostNameBytes bytes that is
// not "__metadata__".
bool is_tensor_name(std::string_view name);

// Reads the JSON of a header whose file holds `data_bytes` behind it. kInvalidArgument names the tensor and
// says what is wrong: an unknown type, a length that is not that of type and shape, a name that comes twice,
// or data that overlap, leave a gap or lie outside of the file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

// The length, the JSON and its spaces: what the file begins with. The tensors must tile the data.
// kInvalidArgument: the header is longer than the format allows.
Result<std::string> format_safetensors_header(const SafetensorsHeader& header);

}  // namespace hdt::training
