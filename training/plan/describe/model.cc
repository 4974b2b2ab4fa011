// model.cc: units of the row, counted over the layer kinds.
#include "training/plan/describe/model.h"

#include <fmt/format.h>

#include <set>

namespace hdt::plan {

int Model::num_units() const {
  int units = 0;
  for (const LayerKind& kind : layers) units += kind.count;
  return units;
}

const LayerKind& Model::unit(int index) const {
  size_t kind = 0;
  while (index >= layers[kind].count) index -= layers[kind++].count;
  return layers[kind];
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
  std::set<std::string> names;
  for (const LayerKind& kind : model.layers) {
    if (!names.insert(kind.name).second)
      return refuse(fmt::format("layer.kind: '{}' given twice", kind.name));
  }
  return Status::ok();
}

}  // namespace hdt::plan
