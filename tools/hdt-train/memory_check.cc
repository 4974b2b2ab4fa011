// memory_check.cc: counts parameters by the shapes of their tensors.
#include "tools/hdt-train/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/available_memory.h"
#include "tools/hdt-train/plan_layout.h"
#include "training/engine/hdt_operation.h"
#include "training/engine/ownership.h"
#include "training/torch/tensor_names.h"
#include "training/torch/torch_stage.h"

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

// The copies of a rank's units that keep them. Layers that are recomputed as a whole have them one at a time,
// which is not counted. Those that recompute attention only have them like the others.
double bytes_of_copies(const TrainFlags& flags, const training::Layout& layout, int rank) {
  const double each = bytes_of_parameter(flags.types()).copies;
  if (each == 0) return 0;
  size_t elements = 0;
  training::Position position = layout.position_of(rank);
  for (const training::UnitRange& units : layout.ranges_of(rank)) {
    const int first_layer = std::max(units.first, 1);
    const int end = first_layer + recomputed_layers(flags, layout, position);
    for (int unit = units.first; unit < units.end; ++unit) {
      const bool is_layer = unit != layout.embedding_unit() && unit != layout.head_unit();
      if (is_layer && unit < end) continue;
      elements += training::elements_of(training::named_tensors(flags.shape, unit));
    }
    ++position.chunk;
  }
  return each * static_cast<double>(elements);
}

// What a rank needs at its fullest moment.
struct NeededBytes {
  double all = 0;
  double keys_and_values = 0;  // a part of it
};

// Text is generated after training, when nothing is between forward and backward: the copies are gone then.
NeededBytes with_keys_and_values(double bytes, double copies, const TrainFlags& flags,
                                 const training::Layout& layout, int rank) {
  double cache = 0;
  if (flags.sample_tokens > 0 && layout.position_of(rank).replica == 0) {
    const auto each = static_cast<double>(training::key_value_bytes(flags.shape, flags.type));
    for (const training::UnitRange& units : layout.ranges_of(rank)) {
      const int layers = units.size() - (units.contains(layout.embedding_unit()) ? 1 : 0) -
                         (units.contains(layout.head_unit()) ? 1 : 0);
      cache += each * layers;
    }
  }
  return {bytes + std::max(copies, cache), std::max(cache - copies, 0.0)};
}

NeededBytes needed_bytes(const TrainFlags& flags, const training::Layout& layout, int rank) {
  const BytesOfParameter each_parameter = bytes_of_parameter(flags.types());
  double bytes = 0;
  for (const training::OwnerSet& set : training::owner_sets(layout)) {
    if (std::ranges::find(set.ranks, rank) == set.ranks.end()) continue;
    const double each =
        each_parameter.everywhere + each_parameter.states * share_of_states(set, flags.trainer.shards, rank);
    for (int unit = set.units.first; unit < set.units.end; ++unit) {
      bytes += each * static_cast<double>(training::elements_of(training::named_tensors(flags.shape, unit)));
    }
  }
  return with_keys_and_values(bytes, bytes_of_copies(flags, layout, rank), flags, layout, rank);
}

}  // namespace

BytesOfParameter bytes_of_parameter(const training::NumberTypes& types) {
  const auto parameter = static_cast<double>(training::bytes_of(types.parameters));
  const auto gradient = static_cast<double>(training::bytes_of(types.gradients));
  const bool is_widened = types.parameters == training::NumberType::kFloat16;
  // A stage has gradients in its own type beside those that are added up in another one (torch_stage.h).
  const bool has_own = types.gradients != types.parameters && !is_widened;
  // Two moments, and the master of what is not in their type.
  const training::NumberType state = training::state_type_of(types.parameters);
  return {.everywhere = parameter + gradient + (has_own ? parameter : 0),
          .states = static_cast<double>(training::bytes_of(state)) * (types.parameters == state ? 2 : 3),
          .copies = is_widened ? 2.0 * sizeof(float) : 0};
}

int most_layers_in(double bytes, const TrainFlags& flags) {
  const BytesOfParameter each = bytes_of_parameter(flags.types());
  // Where layers are recomputed, those of a stage may all be.
  const bool may_recompute = flags.plan || flags.recomputed_layers > 0;
  const double of_parameter =
      each.everywhere + (flags.trainer.shards.sharded ? 0 : each.states) + (may_recompute ? 0 : each.copies);
  const double of_layer =
      of_parameter * static_cast<double>(training::elements_of(training::named_tensors(flags.shape, 1)));
  return static_cast<int>(std::clamp(bytes / of_layer, 0.0, 1e9));
}

Status check_memory(const TrainFlags& flags, const training::Layout& layout, Communicator& world) {
  // Read before the exchange, so that no rank has begun to allocate.
  const std::optional<int64_t> available = available_memory_bytes();
  // By node: all, and then the part of keys and values.
  const auto nodes = static_cast<size_t>(world.nodes());
  std::vector<double> needed(2 * nodes);
  const auto node = static_cast<size_t>(world.node_of(world.rank()));
  const NeededBytes own = needed_bytes(flags, layout, world.rank());
  needed[node] = own.all;
  needed[nodes + node] = own.keys_and_values;
  HDT_RETURN_IF_ERROR(training::status_of([&] { world.all_reduce(std::span<double>(needed)); }));
  if (!available || needed[node] <= static_cast<double>(*available)) return Status::ok();
  constexpr double kGibibyte = 1 << 30;
  const double text = needed[nodes + node];
  return {
      Code::kSystem,
      fmt::format(
          "the ranks of this node need {:.2f} GiB for parameters, gradients and moments{}, and {:.2f} GiB "
          "are available: {:.2f} GiB are missing, beside the activations. Give this node fewer layers "
          "(--hetero-pipeline-stages, hdt-plan search) or shards (--use-distributed-optimizer){}",
          needed[node] / kGibibyte,
          text == 0 ? ""
                    : fmt::format(" and, {:.2f} GiB of it, for the keys and values of a generated text",
                                  text / kGibibyte),
          static_cast<double>(*available) / kGibibyte,
          (needed[node] - static_cast<double>(*available)) / kGibibyte,
          text == 0 ? "" : ", generate no text (--sample-tokens 0), or shorten it (--seq-length)")};
}

}  // namespace hdt::tools
