// tensor_json.h: fields of JSON objects, read with their types checked; and the type and shape of a tensor,
// which a safetensors header and training_state.json write alike.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "training/checkpoint/safetensors_header.h"

namespace hdt::training {

// All are kInvalidArgument where the object lacks the member, or has one of another type.
Result<const nlohmann::json*> json_member(const nlohmann::json& object, const char* key);
// A whole number from 0 to `most`.
Result<uint64_t> json_number(const nlohmann::json& object, const char* key,
                             uint64_t most = std::numeric_limits<uint64_t>::max());
Result<std::string> json_text(const nlohmann::json& object, const char* key);
Result<const nlohmann::json*> json_object(const nlohmann::json& object, const char* key);

// "tensor 'NAME': REASON".
Status tensor_refused(const std::string& name, const std::string& reason);

struct DtypeAndShape {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  uint64_t elements = 0;  // times dtype_bytes() it is below 2^64
};
// The members "dtype" and "shape". kInvalidArgument names the tensor.
Result<DtypeAndShape> parse_dtype_and_shape(const std::string& name, const nlohmann::json& object);

}  // namespace hdt::training
