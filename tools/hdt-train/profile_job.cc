// profile_job.cc: first the links, which need several ranks; then rank 0 measures computation alone,
// while the other ranks are finished.
#include "tools/hdt-train/profile_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/available_memory.h"
#include "base/median.h"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/link_timing.h"
#include "tools/hdt-train/memory_check.h"
#include "tools/hdt-train/overlap_timing.h"
#include "tools/hdt-train/unit_timing.h"
#include "training/engine/hdt_operation.h"
#include "training/plan/describe/toml_files.h"
#include "training/torch/tensor_names.h"
#include "training/torch/torch_stage.h"

namespace hdt::tools {
namespace {

using training::status_of;

// The measurements between ranks.
struct MeasuredLinks {
  // Between two ranks of one node. No value: no two ranks share rank 0's node.
  std::optional<plan::Link> inside;
  // Between ranks of two nodes.
  std::optional<plan::Link> between;
  // By device: how many times longer computation takes beside communication, over the last link that was
  // measured.
  std::map<std::string, double> slowdowns;
};

// The first rank that is, or is not, on rank 0's node. 0: there is none.
int first_peer(const Communicator& world, bool same_node) {
  for (int rank = 1; rank < world.size(); ++rank) {
    if ((world.node_of(rank) == world.node_of(0)) == same_node) return rank;
  }
  return 0;
}

// A communicator of rank 0 and of first_peer(). Nothing if there is no such peer, or if the caller is
// neither of the two. All ranks of `world` must call it, as it splits.
Result<std::optional<Communicator>> make_pair_of(Communicator& world, bool same_node) {
  std::optional<Communicator> pair;
  HDT_RETURN_IF_ERROR(status_of([&] {
    const int peer = first_peer(world, same_node);
    const bool member = world.rank() == 0 || world.rank() == peer;
    if (peer != 0) pair = world.split(member ? 0 : HDT_SPLIT_NO_COLOR, world.rank());
  }));
  return pair;
}

// A layer kind of the model: the units to measure as one stage, and how many units the model has.
struct UnitKind {
  const char* name;
  training::UnitRange measured;
  int count;
  bool has_attention = false;
};

// Several layers in a row, if the model has them. As in a real stage, their weights then come from
// memory that is further away than the nearest cache.
constexpr int kMeasuredLayers = 4;

std::array<UnitKind, 3> kinds_of(const training::ModelShape& shape) {
  const int head = shape.num_layers + 1;
  return {{{"embedding", {0, 1}, 1},
           {"layer", {1, std::min(shape.num_layers, kMeasuredLayers) + 1}, shape.num_layers, true},
           {"head", {head, head + 1}, 1}}};
}

// Everything is measured in rounds. A machine that is disturbed for a while then disturbs all figures a
// little, and none much.
constexpr int kRounds = 5;

// The timings of a layer kind; `attention_again` is measured of layers alone.
struct KindTiming {
  UnitTiming kept;
  UnitTiming attention_again;
};

// Both one after the other, so that what disturbs the machine for a while disturbs both.
void time_kind(const TrainFlags& flags, const UnitKind& kind, int micro_batch_size, double slow_down,
               KindTiming& timing) {
  const auto time = [&](bool attention_again, UnitTiming& into) {
    time_units(flags.shape, kind.measured, flags.types(), micro_batch_size, slow_down, attention_again, into);
  };
  time(false, timing.kept);
  if (kind.has_attention) time(true, timing.attention_again);
}

// The differences between the two timings. A short forward of attention may be lost in what a machine's times
// vary by. The profile has positive times only, so the difference is at least one nanosecond.
plan::RecomputedAttention recomputed_attention(const KindTiming& timing) {
  constexpr double kLeastSeconds = 1e-9;
  const double kept = median(timing.kept.forward) + median(timing.kept.backward);
  const double again = median(timing.attention_again.forward) + median(timing.attention_again.backward);
  return {std::max(kLeastSeconds, again - kept),
          std::min(timing.kept.activation_bytes, timing.attention_again.activation_bytes)};
}

// Measures computation and fills profile.compute, rank 0 only.
void add_compute(const TrainFlags& flags, plan::Profile& profile) {
  std::map<plan::ComputeKey, KindTiming> timings;
  // Parameters of the whole model.
  size_t elements = 0;
  for (const UnitKind& kind : kinds_of(flags.shape))
    elements += kind.count * unit_elements(flags.shape, kind.measured.first);
  // The embedding and the head of the model have a tied matrix once.
  if (flags.shape.tied_head)
    elements -= training::elements_of(training::named_tensors(flags.shape, training::kTiedUnit));
  // Seconds of an update of the whole model. A unit alone would stay in the caches.
  std::vector<double> updates;
  // In each round everything is measured once.
  for (int round = 0; round < kRounds; ++round) {
    updates.push_back(time_update(elements, flags.types()));
    for (const UnitKind& kind : kinds_of(flags.shape)) {
      for (const EmulatedDevice& device : flags.profile_devices) {
        for (const int size : flags.profile_micro_batch_sizes)
          time_kind(flags, kind, size, device.slow_down, timings[{device.name, kind.name, 1, size}]);
      }
    }
    fmt::print("round {} of {}\n", round + 1, kRounds);
    std::fflush(stdout);
  }
  // By layer kind: its part of the whole update, in proportion to its parameters.
  std::map<std::string, double> update_of;  // by layer
  for (const UnitKind& kind : kinds_of(flags.shape))
    update_of[kind.name] = median(updates) *
                           static_cast<double>(unit_elements(flags.shape, kind.measured.first)) /
                           static_cast<double>(elements);
  for (const auto& [key, timing] : timings) {
    const double forward = median(timing.kept.forward);
    const double backward = median(timing.kept.backward);
    const double update = update_of.at(key.layer);
    // These are halves and not measurements: autograd computes both gradients together. 1F1B needs only
    // their sum.
    plan::LayerCost& cost = profile.compute[key];
    cost = {forward, backward / 2, backward / 2, update, timing.kept.activation_bytes};
    fmt::print("{:<12} {:<10} {:>3} samples: forward {:8.3f} ms, backward {:8.3f} ms, update {:.3f} ms\n",
               key.device, key.layer, key.micro_batch_size, 1e3 * forward, 1e3 * backward, 1e3 * update);
    if (timing.attention_again.forward.empty()) continue;
    cost.recomputed_attention = recomputed_attention(timing);
    fmt::print("{:<12} {:<10} {:>3} samples: attention again {:.3f} ms, keeps {:.1f} % of the activations\n",
               key.device, key.layer, key.micro_batch_size, 1e3 * cost.recomputed_attention->more_seconds,
               100 * static_cast<double>(cost.recomputed_attention->activation_bytes) /
                   static_cast<double>(cost.activation_bytes));
  }
}

// Inside a node first, then between nodes; for each of them also by how much communication slows down
// computation.
Result<MeasuredLinks> measure_links(const TrainFlags& flags, Communicator& world) {
  MeasuredLinks links;
  for (const auto& [same_node, measured] :
       {std::pair{true, &links.inside}, std::pair{false, &links.between}}) {
    Result<std::optional<Communicator>> made = make_pair_of(world, same_node);
    if (!made.is_ok()) return made.status();
    if (!made.value()) continue;
    Communicator& pair = *made.value();
    const Result<plan::Link> link = time_link(pair);
    if (!link.is_ok()) return link.status();
    *measured = link.value();
    Result<std::map<std::string, double>> slowdowns =
        time_overlap(flags, kinds_of(flags.shape)[1].measured, pair);
    if (!slowdowns.is_ok()) return slowdowns.status();
    links.slowdowns = slowdowns.take();
  }
  return links;
}

void add_links(const TrainFlags& flags, const MeasuredLinks& links, plan::Profile& profile) {
  // A link for which there was no pair of ranks is taken to be as the other one.
  const auto& inside = links.inside ? links.inside : links.between;
  const auto& between = links.between ? links.between : links.inside;
  if (!inside) return;
  for (const EmulatedDevice& from : flags.profile_devices) {
    profile.links[{from.name, from.name, true}] = *inside;
    for (const EmulatedDevice& to : flags.profile_devices) {
      // A link is the same in both directions (Profile::find_link), so one entry of a pair is enough.
      if (from.name <= to.name) profile.links[{from.name, to.name, false}] = *between;
    }
  }
}

// Comments for the profile's head that say what was not measured.
std::string remarks(const TrainFlags& flags, const MeasuredLinks& links) {
  std::string text =
      "# Measured by hdt-train --profile. input_gradient and weight_gradient are halves of the measured "
      "backward.\n";
  for (const EmulatedDevice& device : flags.profile_devices) {
    if (device.slow_down > 1)
      text += fmt::format("# {}: emulated, this machine slowed down {} times (not in update).\n", device.name,
                          device.slow_down);
  }
  if (!links.inside && !links.between)
    text += "# One rank: no link was measured, and not by how much communication slows computation down.\n";
  else if (!links.between)
    text += "# All ranks were on one node: links between nodes are those inside.\n";
  else if (!links.inside)
    text += "# No two ranks were on one node: links inside nodes are those between.\n";
  return text;
}

constexpr const char* kProfileFile = "/profile.toml";
constexpr const char* kModelFile = "/model.toml";

// Makes the folder, and tries both files.
Status prepare_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Status::from_errno("--profile: cannot create the folder " + folder, error.value());
  for (const char* file : {kProfileFile, kModelFile}) {
    const Status writable = check_writable(folder + file);
    if (!writable.is_ok()) return {writable.code(), "--profile: " + writable.message()};
  }
  return Status::ok();
}

}  // namespace

// The model's file. Its layer kinds have the names under which add_compute() measures them.
namespace {

int64_t tied_elements(const training::ModelShape& shape) {
  return static_cast<int64_t>(training::elements_of(training::named_tensors(shape, training::kTiedUnit)));
}

}  // namespace

plan::Model profiled_model(const TrainFlags& flags) {
  const training::ModelShape& shape = flags.shape;
  plan::Model model;
  model.name = fmt::format("{}-{}x{}", shape.family == training::ModelFamily::kGpt2 ? "gpt2" : "llama",
                           shape.num_layers, shape.hidden_size);
  model.types = flags.types();
  const auto each = static_cast<int64_t>(training::bytes_of(model.types.parameters));
  const BytesOfParameter kept = bytes_of_parameter(model.types);
  model.state_factor = (kept.everywhere + kept.states + kept.copies) / static_cast<double>(each);
  model.optimizer_factor = kept.states / static_cast<double>(each);
  const int64_t output = shape.sequence_length * shape.hidden_size * each;
  for (const UnitKind& kind : kinds_of(shape)) {
    const int64_t bytes = static_cast<int64_t>(unit_elements(shape, kind.measured.first)) * each;
    model.layers.push_back({kind.name, kind.count, output, {{1, bytes}}});
  }
  if (shape.tied_head) model.tied_parameter_bytes = {{1, tied_elements(shape) * each}};
  return model;
}

Status run_profile(const TrainFlags& flags, Communicator& world) {
  training::set_torch_threads(flags.threads);
  const int rank = world.rank();
  // Before anything is measured: what every rank has.
  const std::optional<int64_t> own_bytes = own_memory_bytes();
  // A folder that cannot be written is found out before the measuring begins.
  HDT_RETURN_IF_ERROR(all_ready(rank == 0 ? prepare_folder(flags.profile_folder) : Status::ok(), world));
  const Result<MeasuredLinks> measured = measure_links(flags, world);
  if (!measured.is_ok()) return measured.status();
  const MeasuredLinks& links = measured.value();
  if (rank != 0) return Status::ok();
  plan::Profile profile;
  profile.name = flags.profile_devices.front().name;
  add_links(flags, links, profile);
  profile.overlap_slowdowns = links.slowdowns;
  for (const EmulatedDevice& device : flags.profile_devices) {
    if (own_bytes) profile.fixed_bytes[device.name] = *own_bytes;
  }
  for (const auto& [device, slowdown] : links.slowdowns)
    fmt::print("{:<12} computes {:.3f} times as long beside communication\n", device, slowdown);
  add_compute(flags, profile);
  HDT_RETURN_IF_ERROR(write_file_atomically(flags.profile_folder + kProfileFile,
                                            remarks(flags, links) + plan::to_toml(profile)));
  HDT_RETURN_IF_ERROR(
      write_file_atomically(flags.profile_folder + kModelFile, plan::to_toml(profiled_model(flags))));
  fmt::print("written: {0}/profile.toml, {0}/model.toml\n", flags.profile_folder);
  return Status::ok();
}

}  // namespace hdt::tools
