// model.h: a model as the planner sees it: a row of units of parameters, each of one layer kind.
//
// The row is that of the engine (training/engine/layout.h): the embedding, the transformer layers, the head.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// Consecutive units of one kind.
struct LayerKind {
  std::string name;
  int count = 1;
  int64_t output_bytes = 0;                // of one sample: what the next stage receives
  std::map<int, int64_t> parameter_bytes;  // by tensor-parallel degree: of one device, one unit
};

struct Model {
  std::string name;
  // Bytes kept per byte of parameters: 4 for the weight, the gradient and Adam's two moments in one type.
  double state_factor = 4;
  std::vector<LayerKind> layers;  // first the embedding, last the head, each one unit

  int num_units() const;
  int num_layers() const { return num_units() - 2; }  // without embedding and head
  const LayerKind& unit(int index) const;
};

// kConfig with the field and the reason unless the row can be trained.
Status check_model(const Model& model);

}  // namespace hdt::plan
