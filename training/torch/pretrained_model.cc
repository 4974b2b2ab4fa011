// pretrained_model.cc: compares what is there with what the model has, by names.
#include "training/torch/pretrained_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "training/checkpoint/paths.h"
#include "training/torch/hugging_face_config.h"
#include "training/torch/tensor_names.h"

namespace hdt::training {
namespace {

constexpr size_t kMostDifferences = 4;  // in a message

// Tables that follow from the sizes; older versions of the library stored them beside the parameters.
bool is_table(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

// Files of the model without its head lack the first part of the names.
const char* prefix_of(ModelFamily family) { return family == ModelFamily::kGpt2 ? "transformer." : "model."; }

}  // namespace

Result<PretrainedModel> PretrainedModel::open(const std::string& folder) {
  const auto shape = read_model_config(folder + "/" + kConfigFile);
  if (!shape.is_ok()) return shape.status();
  auto tensors = ModelFolder::open(folder);
  if (!tensors.is_ok()) return tensors.status();
  PretrainedModel model(shape.value(), tensors.take());
  HDT_RETURN_IF_ERROR(model.match());
  return model;
}

Status PretrainedModel::match() {
  const char* const prefix = prefix_of(shape_.family);
  std::vector<std::string> differences;
  std::map<std::string, Shape> expected;
  for (const TensorInfo& tensor : model_tensors(shape_))
    expected[tensor.name].assign(tensor.shape.begin(), tensor.shape.end());
  for (const auto& [stored, place] : tensors_.tensors()) {
    if (is_table(stored)) continue;
    const std::string name = expected.contains(stored) ? stored : prefix + stored;
    const auto found = expected.find(name);
    if (found == expected.end()) {
      differences.push_back(fmt::format("{} is not one of this model", stored));
      continue;
    }
    // Also one that is of no use, so that it is not called missing as well.
    if (!stored_names_.emplace(name, stored).second)
      differences.push_back(fmt::format("{} is there twice, with and without '{}'", name, prefix));
    const Dtype dtype = place.entry->dtype;
    if (place.entry->shape != found->second) {
      differences.push_back(
          fmt::format("{} is {} there, expected {}", stored, place.entry->shape, found->second));
    } else if (!number_type_of(dtype)) {
      differences.push_back(
          fmt::format("{} is {} there, expected F32, BF16, F16 or F64", stored, dtype_name(dtype)));
    }
  }
  for (const auto& [name, shape] : expected) {
    if (!stored_names_.contains(name)) differences.push_back(fmt::format("{} is missing", name));
  }
  if (differences.empty()) return Status::ok();
  const size_t shown = std::min(differences.size(), kMostDifferences);
  return {Code::kInvalidArgument,
          fmt::format(
              "{}: the tensors are not those of {}: {}{}", folder(), kConfigFile,
              fmt::join(differences.begin(), differences.begin() + shown, "; "),
              shown == differences.size() ? "" : fmt::format("; and {} more", differences.size() - shown))};
}

Status PretrainedModel::read(const TensorInfo& tensor, TypedSpan out) const {
  const auto found = stored_names_.find(tensor.name);
  return tensors_.read(found == stored_names_.end() ? tensor.name : found->second, out);
}

}  // namespace hdt::training
