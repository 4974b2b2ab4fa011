// trained_tensor.h: a parameter and AdamW's two moments of it, which a checkpoint keeps as three tensors.
// Their names and shards are decided here alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/checkpoint_folder.h"

namespace hdt::training {

// A tensor with this name and shape, row-major: whole parameters, and moments of the same elements or of a
// part of them, as a rank with sharded optimizer states has them. All three are fp32, or all fp64.
struct TrainedTensor {
  std::string name;
  Shape shape;
  TypedSpan parameters;
  uint64_t first = 0;  // the element at which both moments begin
  TypedSpan exp_avg;
  TypedSpan exp_avg_sq;
};

// Appends the three to what a rank writes. The moments must be whole. The spans are not copied.
void add_views(const TrainedTensor& tensor, ShardTensors& shard);
// Appends the three that a complete checkpoint has of the parameter `name` with so many elements.
void add_expected(const std::string& name, uint64_t elements, std::vector<ExpectedTensor>& expected);
// Fills the spans from the checkpoint, in their type whichever the checkpoint has; a moment of no elements is
// not looked at. Errors are those of Checkpoint::read().
Status read_trained(Checkpoint& checkpoint, const TrainedTensor& tensor);

}  // namespace hdt::training
