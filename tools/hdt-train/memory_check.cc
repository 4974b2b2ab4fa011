// memory_check.cc: counts parameters by the shapes of their tensors.
#include "tools/hdt-train/memory_check.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/available_memory.h"
#include "tools/hdt-train/unit_timing.h"
#include "training/engine/hdt_operation.h"
#include "training/engine/ownership.h"

namespace hdt::tools {
namespace {

// The part of a set's optimizer states that `rank` keeps.
double share_of_states(const training::OwnerSet& set, const training::ShardOptions& shards, int rank) {
  if (!shards.sharded || set.ranks.size() == 1) return 1;
  if (shards.weights.empty()) return 1.0 / static_cast<double>(set.ranks.size());
  double all = 0;
  for (const int owner : set.ranks) all += shards.weights[static_cast<size_t>(owner)];
  return shards.weights[static_cast<size_t>(rank)] / all;
}

double needed_bytes(const TrainFlags& flags, const training::Layout& layout, int rank) {
  const auto parameter = static_cast<double>(training::bytes_of(flags.type));
  const auto gradient = static_cast<double>(training::bytes_of(flags.trainer.gradients));
  // A stage has gradients in its own type beside those that are added up in another one (torch_stage.h).
  const double own_gradient = flags.trainer.gradients == flags.type ? 0 : parameter;
  // Two moments, and the master of what is not in fp32.
  const double states = sizeof(float) * (flags.type == training::NumberType::kFloat32 ? 2 : 3);
  double bytes = 0;
  for (const training::OwnerSet& set : training::owner_sets(layout)) {
    if (std::ranges::find(set.ranks, rank) == set.ranks.end()) continue;
    const double each =
        parameter + gradient + own_gradient + states * share_of_states(set, flags.trainer.shards, rank);
    for (int unit = set.units.first; unit < set.units.end; ++unit) {
      bytes += each * static_cast<double>(unit_elements(flags.shape, unit));
    }
  }
  return bytes;
}

}  // namespace

Status check_memory(const TrainFlags& flags, const training::Layout& layout, Communicator& world) {
  // Read before the exchange, so that no rank has begun to allocate.
  const std::optional<int64_t> available = available_memory_bytes();
  std::vector<double> needed(static_cast<size_t>(world.nodes()));  // by node
  const auto node = static_cast<size_t>(world.node_of(world.rank()));
  needed[node] = needed_bytes(flags, layout, world.rank());
  HDT_RETURN_IF_ERROR(training::status_of([&] { world.all_reduce(std::span<double>(needed)); }));
  if (!available || needed[node] <= static_cast<double>(*available)) return Status::ok();
  constexpr double kGibibyte = 1 << 30;
  return {Code::kSystem,
          fmt::format(
              "the ranks of this node need {:.2f} GiB for parameters, gradients and moments, and {:.2f} GiB "
              "are available: {:.2f} GiB are missing, beside the activations. Give this node fewer layers "
              "(--hetero-pipeline-stages, hdt-plan search) or shards (--use-distributed-optimizer)",
              needed[node] / kGibibyte, static_cast<double>(*available) / kGibibyte,
              (needed[node] - static_cast<double>(*available)) / kGibibyte)};
}

}  // namespace hdt::tools
