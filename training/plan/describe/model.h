// model.h: a model as the planner sees it: a row of units with parameters, each unit of one layer kind.
//
// The row is that of the engine (training/engine/layout.h): the embedding, the transformer layers, the
// head. A unit is never split among stages.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/numbers/number_type.h"

namespace hdt::plan {

// Consecutive units of one kind.
struct LayerKind {
  std::string name;
  int count = 1;
  // Bytes that one unit passes on for one sample, which is what the next stage receives. All devices of
  // a tensor-parallel group together.
  int64_t output_bytes = 0;
  // By tensor-parallel degree: bytes of parameters that one device has of one unit. A degree that is
  // missing cannot be used.
  std::map<int, int64_t> parameter_bytes;
  // Sums over the devices of a tensor-parallel group that one unit does in its forward and in its backward,
  // each by its bytes for one sample, all of which every device has. Only where the profile's times are
  // without them. Empty: they are in the profile's times, or there are none.
  std::vector<int64_t> forward_sums = {};
  std::vector<int64_t> backward_sums = {};
};

// The whole row. check_model() must accept it before anything else uses it.
struct Model {
  std::string name;
  // Bytes of training state for each byte of parameters. 4 is right if the weight, the gradient and
  // Adam's two moments are of one type.
  double state_factor = 4;
  // The part of `state_factor` that is the optimizer's: its moments, and masters of parameters in a smaller
  // type. The other part is that of parameters and gradients.
  double optimizer_factor = 2;
  // By tensor-parallel degree: of the parameters of the embedding and of the head, so many bytes are one
  // matrix that both use (training::kTiedUnit). A stage that has both holds it once. Empty: nothing is tied.
  std::map<int, int64_t> tied_parameter_bytes = {};
  // The types of the numbers that the bytes above and below are bytes of: parameter_bytes and output_bytes of
  // `types.parameters`. The times do not depend on them, but those of reductions, which are of gradients.
  training::NumberTypes types = {};
  // In the order of the row. The first is the embedding and the last is the head, each one unit.
  std::vector<LayerKind> layers;

  // Units of all kinds, embedding and head included.
  int num_units() const;
  // Units without the embedding and the head: what the stages of a plan divide.
  int num_layers() const { return num_units() - 2; }
  // The kind of the unit at `index`, from 0 to num_units() - 1.
  const LayerKind& unit(int index) const;
  // Whether a kind of layers has sums over a tensor-parallel group.
  bool has_sums() const;
  bool has_tied_unit() const { return !tied_parameter_bytes.empty(); }
  // Bytes of gradients for each byte of parameters.
  int gradient_factor() const {
    return static_cast<int>(training::bytes_of(types.gradients) / training::bytes_of(types.parameters));
  }
  // The bytes of parameters on one device that belong to `unit` and to no other one. `unit` may be
  // training::kTiedUnit. The degree must be one that the model has.
  int64_t bytes_of(int unit, int tensor_parallel) const;
};

// kConfig with field and reason if there are fewer than three kinds, the embedding or the head is not
// one unit, a name is given twice, or the optimizer's part is not smaller than the whole, or
// the tied bytes are more than those of the embedding or of the head, or of other degrees, or gradients are
// of a type that does not go with the parameters'.
Status check_model(const Model& model);

}  // namespace hdt::plan
