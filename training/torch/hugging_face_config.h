// hugging_face_config.h: a model's sizes as config.json of Hugging Face's library. Free of torch.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "training/numbers/number_type.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

// Reads the text of a config.json. Values that are absent are those of the library's classes. The sequence
// length is 0, as a run chooses it. kInvalidArgument: the text is damaged, or it asks for what the layers
// here do not compute; the message has the key and its value.
Result<ModelShape> parse_model_config(std::string_view text);
// The same, of a file. The message begins with the path.
Result<ModelShape> read_model_config(const std::string& path);

// The text of the config.json of a model of this shape, whose parameters are stored in fp32 or fp64.
std::string model_config_text(const ModelShape& shape, NumberType stored = NumberType::kFloat32);

}  // namespace hdt::training
