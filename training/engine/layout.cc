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
    positions_.push_back({replica, stage, 0});
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

Layout::Layout(int num_layers, std::vector<Replica> replicas, std::vector<std::vector<int>> ranks)
    : num_layers_(num_layers), replicas_(std::move(replicas)), ranks_(std::move(ranks)) {
  size_t size = 0;
  for (const std::vector<int>& of_replica : ranks_) size += of_replica.size();
  positions_.resize(size);
  for (int replica = 0; replica < num_replicas(); ++replica) {
    for (int stage = 0; stage < replicas_[replica].stages(); ++stage)
      positions_[static_cast<size_t>(ranks_[replica][stage])] = {replica, stage, 0};
  }
}

int64_t Layout::global_batch_size() const { return first_sample(num_replicas()); }

int64_t Layout::first_sample(int replica) const {
  int64_t first = 0;
  for (int before = 0; before < replica; ++before) first += replicas_[before].samples();
  return first;
}

UnitRange Layout::units_of(Position position) const {
  const Replica& replica = replicas_[position.replica];
  const std::vector<int>& layers = replica.stage_layers;
  const int virtual_stage = position.chunk * replica.stages() + position.stage;
  int first = 1;  // layers begin after the embedding
  for (int before = 0; before < virtual_stage; ++before) first += layers[before];
  int end = first + layers[virtual_stage];
  if (virtual_stage == 0) first = embedding_unit();
  if (virtual_stage == replica.virtual_stages() - 1) end = head_unit() + 1;
  return {first, end};
}

std::vector<UnitRange> Layout::ranges_of(int rank) const {
  std::vector<UnitRange> ranges;
  Position position = position_of(rank);
  for (; position.chunk < replicas_[position.replica].chunks; ++position.chunk)
    ranges.push_back(units_of(position));
  return ranges;
}

int Layout::owner_of(int unit, int replica) const {
  if (unit == kTiedUnit) unit = embedding_unit();
  const int stages = replicas_[replica].stages();
  int virtual_stage = 0;
  while (!units_of({replica, virtual_stage % stages, virtual_stage / stages}).contains(unit)) ++virtual_stage;
  return rank_of({replica, virtual_stage % stages, 0});
}

std::vector<int> Layout::owners_of(int unit, int replica) const {
  std::vector<int> owners = {owner_of(unit, replica)};
  if (unit == kTiedUnit) {
    const int head = owner_of(head_unit(), replica);
    if (head != owners.front()) owners.push_back(head);
  }
  return owners;
}

}  // namespace hdt::training
