// trained_tensor.cc: parameters go to the model's shards, moments to the optimizer's.
#include "training/checkpoint/trained_tensor.h"

namespace hdt::training {

void add_views(const TrainedTensor& tensor, ShardTensors& shard) {
  shard.model.push_back(typed_view(tensor.name, tensor.shape, tensor.parameters));
  shard.optimizer.push_back(typed_view(tensor.name + kFirstMomentSuffix, tensor.shape, tensor.exp_avg));
  shard.optimizer.push_back(typed_view(tensor.name + kSecondMomentSuffix, tensor.shape, tensor.exp_avg_sq));
}

void add_expected(const std::string& name, uint64_t elements, std::vector<ExpectedTensor>& expected) {
  expected.push_back({name, elements, ShardKind::kModel});
  for (const char* suffix : {kFirstMomentSuffix, kSecondMomentSuffix})
    expected.push_back({name + suffix, elements, ShardKind::kOptimizer});
}

Status read_trained(Checkpoint& checkpoint, const TrainedTensor& tensor) {
  HDT_RETURN_IF_ERROR(checkpoint.read(tensor.name, 0, tensor.parameters));
  // A part costs reading and hashing the whole tensor, so who has none leaves it to those who have.
  if (tensor.exp_avg.empty()) return Status::ok();
  HDT_RETURN_IF_ERROR(checkpoint.read(tensor.name + kFirstMomentSuffix, tensor.first, tensor.exp_avg));
  return checkpoint.read(tensor.name + kSecondMomentSuffix, tensor.first, tensor.exp_avg_sq);
}

}  // namespace hdt::training
