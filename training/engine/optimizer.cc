// optimizer.cc: tensor by tensor, so that each takes weight decay or does not.
#include "training/engine/optimizer.h"

#include <algorithm>

namespace hdt::training {

Optimizer::Optimizer(UnitMemory& memory, const AdamWOptions& options, std::span<const OwnerSet> sets,
                     int rank)
    : memory_(memory),
      options_(options),
      first_moment_(memory.all_parameters().size()),
      second_moment_(first_moment_.size()) {
  for (const OwnerSet& set : sets) {
    const auto owner = std::ranges::find(set.ranks, rank);
    if (owner == set.ranks.end()) continue;
    // All owners of a set hold the same tensors of it, so they share them out alike.
    std::vector<size_t> sizes;
    const size_t first = tensors_.size();
    for (int unit = set.units.first; unit < set.units.end; ++unit) {
      size_t at = memory.start(unit);
      for (const TensorInfo& tensor : memory.tensors(unit)) {
        const size_t count = tensor.elements();
        tensors_.push_back({&tensor, memory.all_parameters().subspan(at, count),
                            std::span(first_moment_).subspan(at, count),
                            std::span(second_moment_).subspan(at, count)});
        sizes.push_back(count);
        at += count;
      }
    }
    const std::vector<int> writers = share_out(sizes, static_cast<int>(set.ranks.size()));
    for (size_t i = 0; i < sizes.size(); ++i)
      tensors_[first + i].written_here = set.ranks[writers[i]] == rank;
  }
}

void Optimizer::update(int64_t step, double learning_rate, double gradient_scale) {
  for (const TensorState& tensor : tensors_) {
    const size_t at = tensor.parameters.data() - memory_.all_parameters().data();
    adamw_update({tensor.parameters, memory_.all_gradients().subspan(at, tensor.parameters.size()),
                  tensor.exp_avg, tensor.exp_avg_sq},
                 options_, step + 1, static_cast<float>(learning_rate), static_cast<float>(gradient_scale),
                 tensor.info->weight_decay);
  }
}

}  // namespace hdt::training
