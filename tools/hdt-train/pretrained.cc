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

Status load_parameters(const training::PretrainedModel& model, const training::Optimizer& optimizer) {
  for (const training::TensorState& tensor : optimizer.tensors()) {
    const training::TypedMemory parameters =
        training::plain_memory(tensor.master.type(), tensor.parameters.size());
    HDT_RETURN_IF_ERROR(model.read(*tensor.info, parameters.span()));
    training::set_parameters(tensor, parameters.span());
  }
  return Status::ok();
}

}  // namespace hdt::tools
