// safetensors_header.cc: the header's JSON, checked field by field; the data of all tensors must tile the
// file.
#include "training/checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/foreign_json.h"
#include "training/checkpoint/tensor_json.h"

namespace hdt::training {
namespace {

using nlohmann::json;

struct DtypeRow {
  const char* name;
  uint64_t bytes;
};
// In the order of Dtype.
constexpr std::array<DtypeRow, 15> kDtypes = {{{"BOOL", 1},
                                               {"U8", 1},
                                               {"I8", 1},
                                               {"F8_E5M2", 1},
                                               {"F8_E4M3", 1},
                                               {"I16", 2},
                                               {"U16", 2},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"I32", 4},
                                               {"U32", 4},
                                               {"F32", 4},
                                               {"F64", 8},
                                               {"I64", 8},
                                               {"U64", 8}}};

constexpr char kMetadata[] = "__metadata__";
constexpr uint64_t kHeaderAlignment = 8;

const DtypeRow& row_of(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)); }

Result<TensorEntry> entry_of(const std::string& name, const json& fields, uint64_t data_bytes) {
  auto type = parse_dtype_and_shape(name, fields);
  if (!type.is_ok()) return type.status();
  const auto found = json_member(fields, "data_offsets");
  if (!found.is_ok()) return tensor_refused(name, found.status().message());
  const json& offsets = *found.value();
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return tensor_refused(name, "its data_offsets are not two whole numbers");
  }
  TensorEntry entry{type.value().dtype, std::move(type.value().shape), type.value().elements,
                    offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return tensor_refused(
        name, fmt::format("its data_offsets {} to {} are not in the file's {} bytes of data", entry.begin,
                          entry.end, data_bytes));
  }
  const uint64_t expected = entry.elements * dtype_bytes(entry.dtype);
  if (entry.end - entry.begin != expected) {
    return tensor_refused(name, fmt::format("it has {} bytes of data, its dtype and shape need {}",
                                            entry.end - entry.begin, expected));
  }
  return entry;
}

// Whether the tensors follow each other and fill the data.
Status check_tiling(const SafetensorsHeader& header, uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  for (const auto& [name, entry] : header.tensors) order.emplace_back(&name, &entry);
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t at = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin < at) return tensor_refused(*name, "its data overlap those of another tensor");
    if (entry->begin > at) {
      return tensor_refused(*name, fmt::format("a gap of {} bytes is before its data", entry->begin - at));
    }
    at = entry->end;
  }
  if (at == data_bytes) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("the tensors have {} bytes, the file has {} bytes of data", at, data_bytes)};
}

}  // namespace

const char* dtype_name(Dtype dtype) { return row_of(dtype).name; }
Dtype dtype_of(NumberType type) {
  switch (type) {
    case NumberType::kBFloat16:
      return Dtype::kBF16;
    case NumberType::kFloat16:
      return Dtype::kF16;
    case NumberType::kFloat64:
      return Dtype::kF64;
    case NumberType::kFloat32:
      break;
  }
  return Dtype::kF32;
}

std::optional<NumberType> number_type_of(Dtype dtype) {
  for (const NumberType type :
       {NumberType::kFloat32, NumberType::kBFloat16, NumberType::kFloat16, NumberType::kFloat64}) {
    if (dtype_of(type) == dtype) return type;
  }
  return std::nullopt;
}

uint64_t dtype_bytes(Dtype dtype) { return row_of(dtype).bytes; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (name == kDtypes[i].name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<uint64_t> element_count(const Shape& shape, Dtype dtype) {
  uint64_t bytes = dtype_bytes(dtype);
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes / dtype_bytes(dtype);
}

bool is_tensor_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name != kMetadata && is_plain_text(name);
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') {
    return Status(Code::kInvalidArgument, "its header does not begin with '{'");
  }
  const auto parsed = parse_foreign_json_once(text, kMostHeaderBytes);
  if (!parsed.is_ok()) return Status(Code::kInvalidArgument, "its header: " + parsed.status().message());
  if (!parsed.value().is_object()) return Status(Code::kInvalidArgument, "its header is no JSON object");
  SafetensorsHeader header;
  header.data_bytes = data_bytes;
  for (const auto& [name, fields] : parsed.value().items()) {
    if (name == kMetadata) {
      if (!fields.is_object()) return Status(Code::kInvalidArgument, "__metadata__ is no object of texts");
      for (const auto& [key, value] : fields.items()) {
        if (!value.is_string()) return Status(Code::kInvalidArgument, "__metadata__ is no object of texts");
        header.metadata.emplace(key, value.get<std::string>());
      }
      continue;
    }
    if (!is_tensor_name(name)) {
      return Status(Code::kInvalidArgument, fmt::format("a tensor's name of {} bytes, allowed are 1 to {}",
                                                        name.size(), kMostNameBytes));
    }
    auto entry = entry_of(name, fields, data_bytes);
    if (!entry.is_ok()) return entry.status();
    header.tensors.emplace(name, entry.take());
  }
  HDT_RETURN_IF_ERROR(check_tiling(header, data_bytes));
  return header;
}

Result<std::string> format_safetensors_header(const SafetensorsHeader& header) {
  json object = json::object();
  if (!header.metadata.empty()) object[kMetadata] = header.metadata;
  for (const auto& [name, entry] : header.tensors) {
    object[name] = {{"dtype", dtype_name(entry.dtype)},
                    {"shape", entry.shape},
                    {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = object.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  if (text.size() > kMostHeaderBytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} tensors make a header of {} bytes, the format allows {}",
                              header.tensors.size(), text.size(), kMostHeaderBytes));
  }
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little endian");
  const uint64_t length = text.size();
  std::string bytes(kHeaderLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace hdt::training
