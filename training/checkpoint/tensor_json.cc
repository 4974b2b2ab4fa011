// tensor_json.cc: each function checks one type and gives one reason.
#include "training/checkpoint/tensor_json.h"

#include <fmt/format.h>

namespace hdt::training {

using nlohmann::json;

Result<const json*> json_member(const json& object, const char* key) {
  if (!object.is_object()) return Status(Code::kInvalidArgument, fmt::format("no object with '{}'", key));
  const auto found = object.find(key);
  if (found == object.end()) return Status(Code::kInvalidArgument, fmt::format("'{}' is missing", key));
  return &*found;
}

Result<uint64_t> json_number(const json& object, const char* key, uint64_t most) {
  const auto found = json_member(object, key);
  if (!found.is_ok()) return found.status();
  if (!found.value()->is_number_unsigned() || found.value()->get<uint64_t>() > most) {
    return Status(Code::kInvalidArgument, fmt::format("'{}' is no whole number from 0 to {}", key, most));
  }
  return found.value()->get<uint64_t>();
}

Result<std::string> json_text(const json& object, const char* key) {
  const auto found = json_member(object, key);
  if (!found.is_ok()) return found.status();
  if (!found.value()->is_string()) return Status(Code::kInvalidArgument, fmt::format("'{}' is no text", key));
  return found.value()->get<std::string>();
}

Result<const json*> json_object(const json& object, const char* key) {
  auto found = json_member(object, key);
  if (!found.is_ok() || found.value()->is_object()) return found;
  return Status(Code::kInvalidArgument, fmt::format("'{}' is no object", key));
}

Status tensor_refused(const std::string& name, const std::string& reason) {
  return {Code::kInvalidArgument, fmt::format("tensor '{}': {}", name, reason)};
}

Result<DtypeAndShape> parse_dtype_and_shape(const std::string& name, const json& object) {
  const auto type_name = json_text(object, "dtype");
  if (!type_name.is_ok()) return tensor_refused(name, type_name.status().message());
  const auto dtype = dtype_from_name(type_name.value());
  if (!dtype) return tensor_refused(name, fmt::format("unknown dtype '{}'", type_name.value()));
  const auto sizes = json_member(object, "shape");
  if (!sizes.is_ok()) return tensor_refused(name, sizes.status().message());
  if (!sizes.value()->is_array() || sizes.value()->size() > kMostDimensions) {
    return tensor_refused(name, fmt::format("'shape' is no array of at most {} sizes", kMostDimensions));
  }
  DtypeAndShape read{*dtype, {}, 0};
  for (const json& size : *sizes.value()) {
    if (!size.is_number_unsigned()) return tensor_refused(name, "a size in its shape is no whole number");
    read.shape.push_back(size.get<uint64_t>());
  }
  const auto elements = element_count(read.shape, read.dtype);
  if (!elements) return tensor_refused(name, "the product of its shape is too large");
  read.elements = *elements;
  return read;
}

}  // namespace hdt::training
