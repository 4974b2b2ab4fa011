// pretrained.cc: see pretrained.h.
#include "tools/hdt-train/pretrained.h"

namespace hdt::tools {

Result<std::optional<training::PretrainedModel>> open_pretrained(const TrainFlags& flags) {
  using Found = std::optional<training::PretrainedModel>;
  if (flags.load_hf.empty()) return Found();
  Result<training::PretrainedModel> model = training::PretrainedModel::open(flags.load_hf);
  if (!model.is_ok()) return Status(model.status().code(), "--load-hf: " + model.status().message());
  return Found(model.take());
}

Status load_parameters(const training::PretrainedModel& model, training::UnitMemory& memory) {
  for (const int unit : memory.units()) {
    std::span<float> rest = memory.parameters(unit);
    for (const training::TensorInfo& tensor : memory.tensors(unit)) {
      HDT_RETURN_IF_ERROR(model.read(tensor, rest.first(tensor.elements())));
      rest = rest.subspan(tensor.elements());
    }
  }
  return Status::ok();
}

}  // namespace hdt::tools
