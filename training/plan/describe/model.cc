// model.cc: units of the row, counted over the layer kinds.
#include "training/plan/describe/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "training/engine/layout.h"

namespace hdt::plan {

int Model::num_units() const {
  int units = 0;
  for (const LayerKind& kind : layers) units += kind.count;
  return units;
}

bool Model::has_sums() const {
  return std::ranges::any_of(layers, [](const LayerKind& kind) {
    return !kind.forward_sums.empty() || !kind.backward_sums.empty();
  });
}

const LayerKind& Model::unit(int index) const {
  size_t kind = 0;
  while (index >= layers[kind].count) index -= layers[kind++].count;
  return layers[kind];
}

int64_t Model::bytes_of(int unit, int tensor_parallel) const {
  if (unit == training::kTiedUnit) return tied_parameter_bytes.at(tensor_parallel);
  const int64_t bytes = this->unit(unit).parameter_bytes.at(tensor_parallel);
  const bool uses_tied = has_tied_unit() && (unit == 0 || unit + 1 == num_units());
  return uses_tied ? bytes - tied_parameter_bytes.at(tensor_parallel) : bytes;
}

Status check_model(const Model& model) {
  const auto refuse = [](std::string reason) { return Status(Code::kConfig, std::move(reason)); };
  if (model.layers.size() < 3)
    return refuse(
        fmt::format("layer: {} kinds given, expected the embedding, at least one kind of layer and "
                    "the head",
                    model.layers.size()));
  if (model.layers.front().count != 1 || model.layers.back().count != 1)
    return refuse("layer.count: the first kind (embedding) and the last (head) are one unit each");
  if (model.optimizer_factor <= 0 || model.optimizer_factor >= model.state_factor)
    return refuse(fmt::format(
        "optimizer_factor: {} given, expected more than 0 and less than state_factor ({}), of which it is "
        "a part",
        model.optimizer_factor, model.state_factor));
  if (!training::go_together(model.types))
    return refuse(fmt::format("gradient_type: {} given, expected {} or that of the parameters ({})",
                              training::number_type_name(model.types.gradients),
                              training::number_type_name(training::state_type_of(model.types.parameters)),
                              training::number_type_name(model.types.parameters)));
  if (model.has_tied_unit()) {
    for (const LayerKind* const kind : {&model.layers.front(), &model.layers.back()}) {
      for (const auto& [degree, bytes] : kind->parameter_bytes) {
        const auto tied = model.tied_parameter_bytes.find(degree);
        if (tied == model.tied_parameter_bytes.end())
          return refuse(
              fmt::format("tied_parameter_bytes: none for degree {}, which '{}' has", degree, kind->name));
        if (tied->second > bytes)
          return refuse(fmt::format("tied_parameter_bytes: {} given for degree {}, but '{}' has {} in all",
                                    tied->second, degree, kind->name, bytes));
      }
    }
  }
  std::set<std::string> names;
  for (const LayerKind& kind : model.layers) {
    if (!names.insert(kind.name).second)
      return refuse(fmt::format("layer.kind: '{}' given twice", kind.name));
  }
  return Status::ok();
}

}  // namespace hdt::plan
