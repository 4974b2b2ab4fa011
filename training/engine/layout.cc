// layout.cc: the numbering of ranks, and ranges of units.
#include "training/engine/layout.h"

#include <algorithm>
#include <utility>

namespace hdt::training {

Layout::Layout(int num_layers, std::vector<Replica> replicas, RankOrder order)
    : num_layers_(num_layers), replicas_(std::move(replicas)) {
  int most_stages = 0;
  for (const Replica& replica : replicas_) {
    most_stages = std::max(most_stages, replica.stages());
    ranks_.emplace_back(replica.stages(), 0);
  }
  // Gives the next rank to a stage.
  const auto place = [this](int replica, int stage) {
    ranks_[replica][stage] = static_cast<int>(positions_.size());
    positions_.push_back({replica, stage});
  };
  if (order == RankOrder::kTpPpDp) {
    for (int replica = 0; replica < num_replicas(); ++replica) {
      for (int stage = 0; stage < replicas_[replica].stages(); ++stage) place(replica, stage);
    }
    return;
  }
  // kTpDpPp. Replicas with fewer stages are passed over.
  for (int stage = 0; stage < most_stages; ++stage) {
    for (int replica = 0; replica < num_replicas(); ++replica) {
      if (stage < replicas_[replica].stages()) place(replica, stage);
    }
  }
}

int64_t Layout::global_batch_size() const { return first_sample(num_replicas()); }

int64_t Layout::first_sample(int replica) const {
  int64_t first = 0;
  for (int before = 0; before < replica; ++before) first += replicas_[before].samples();
  return first;
}

UnitRange Layout::units_of(Position position) const {
  const std::vector<int>& layers = replicas_[position.replica].stage_layers;
  int first = 1;  // layers begin after the embedding
  for (int stage = 0; stage < position.stage; ++stage) first += layers[stage];
  int end = first + layers[position.stage];
  if (position.stage == 0) first = embedding_unit();
  if (position.stage == static_cast<int>(layers.size()) - 1) end = head_unit() + 1;
  return {first, end};
}

int Layout::owner_of(int unit, int replica) const {
  int stage = 0;
  while (!units_of({replica, stage}).contains(unit)) ++stage;
  return rank_of({replica, stage});
}

}  // namespace hdt::training
