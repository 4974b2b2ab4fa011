// plan_export.cc: writes a plan as command lines.
#include "training/plan/output/plan_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

namespace hdt::plan {
namespace {

// n0 value0 n1 value1 ...: runs of replicas with the same micro-batches, as Megatron's forks take them. The
// lists of sizes and of counts have the same runs, as the forks want it.
template <typename Value>
std::vector<int> per_replica(const Plan& plan, Value value) {
  std::vector<int> runs;
  const Replica* before = nullptr;
  for (const Replica& replica : plan.replicas) {
    if (!before || before->micro_batch_size != replica.micro_batch_size ||
        before->micro_batches != replica.micro_batches)
      runs.insert(runs.end(), {0, value(replica)});
    ++runs[runs.size() - 2];
    before = &replica;
  }
  return runs;
}

// " n0 layers_0_0 layers_0_1 ... n1 layers_1_0 ...": runs of stages on the same device kind, each with
// its number of stages and the layers of each. A stage of several chunks has a number for each of them.
std::string stages_by_kind(const Replica& replica, const Cluster& cluster) {
  std::string text;
  std::vector<int> layers;
  std::string kind;
  // Writes the stages that were collected so far.
  const auto end_run = [&] {
    const size_t stages = layers.size() / static_cast<size_t>(replica.chunks());
    if (stages > 0) text += fmt::format(" {} {}", stages, fmt::join(layers, " "));
    layers.clear();
  };
  for (const Stage& stage : replica.stages) {
    const std::string& device = cluster.nodes[cluster.index_of(stage.node)].device;
    if (device != kind) end_run();
    kind = device;
    for (int chunk = 0; chunk < stage.chunks(); ++chunk) layers.push_back(stage.layers_of(chunk));
  }
  end_run();
  return text;
}

std::vector<StageRecomputation> recomputation_of(const Plan& plan) {
  std::vector<StageRecomputation> stages;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages)
      stages.push_back({stage.layers, stage.recomputed_layers, stage.attention_only});
  }
  return stages;
}

}  // namespace

std::string recomputation_flags(std::span<const StageRecomputation> stages,
                                std::vector<std::string>& warnings) {
  int least = stages.front().recomputed_layers;
  int most = 0;
  bool any_attention = false;
  bool any_whole = false;
  bool all_layers = true;
  for (const StageRecomputation& stage : stages) {
    least = std::min(least, stage.recomputed_layers);
    most = std::max(most, stage.recomputed_layers);
    any_attention = any_attention || stage.attention_only;
    any_whole = any_whole || (stage.recomputed_layers > 0 && !stage.attention_only);
    all_layers = all_layers && stage.recomputed_layers == stage.layers;
  }
  if (most == 0) return "";
  if (!any_whole) {
    if (!all_layers)
      warnings.push_back(fmt::format(
          "stages recompute the attention of {} to {} layers: --recompute-granularity selective is "
          "of all layers",
          least, most));
    return fmt::format(" --recompute-granularity {}", kSelectiveGranularity);
  }
  // A layer that is recomputed as a whole saves what its attention alone saves, and more.
  if (any_attention)
    warnings.emplace_back(
        "some stages recompute whole layers, others attention only: --recompute-granularity is one for all, "
        "whole layers are given");
  if (least != most)
    warnings.push_back(
        fmt::format("stages recompute {} to {} layers: --recompute-num-layers is one number for all, the "
                    "largest is given",
                    least, most));
  return fmt::format(" --recompute-granularity {} --recompute-method block --recompute-num-layers {}",
                     kFullGranularity, most);
}

bool has_shard_weights(const Plan& plan) {
  return std::ranges::any_of(plan.replicas, [](const Replica& replica) {
    return std::ranges::any_of(replica.stages,
                               [](const Stage& stage) { return stage.optimizer_shard_weight != 1; });
  });
}

std::string optimizer_flags(bool sharded, bool has_weights, std::vector<std::string>& warnings) {
  if (!sharded) return "";
  if (has_weights)
    warnings.emplace_back(
        "optimizer_shard_weight is left out: shards are alike in Megatron and its forks; hdt-train --plan "
        "keeps "
        "the weights");
  return " --use-distributed-optimizer";
}

// Words of harmless characters stay as they are; all others go between single quotes. A single quote
// inside ends the quotes, follows escaped, and begins them again.
std::string shell_word(const std::string& argument) {
  // A list of what is harmless; all that is not listed gets quotes.
  const bool plain = !argument.empty() && std::ranges::all_of(argument, [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("-_./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// One check for each property that the predictor knows and the engine does not have.
Status check_engine_runs(const Plan& plan) {
  const auto refuse = [](const std::string& reason) { return Status(Code::kConfig, reason); };
  if (!plan.runtime.overlap_gradients)
    return refuse("overlap_gradients: false given; hdt-train always reduces during the last backward");
  if (plan.runtime.background_send_bytes)
    return refuse("background_send_bytes: given; hdt-train sends everything in the background");
  if (plan.runtime.lockstep_exchange)
    return refuse("lockstep_exchange: given; hdt-train sends everything in the background");
  // One warning is enough for each property; the first replica that differs is named.
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    for (size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const int degree = plan.replicas[r].stages[s].tensor_parallel;
      if (degree != 1)
        return refuse(
            fmt::format("replica {}.stage {}.tensor_parallel: {} given; hdt-train has no tensor "
                        "parallelism, expected 1",
                        r + 1, s + 1, degree));
    }
  }
  return Status::ok();
}

MegatronFlags megatron_flags(const Plan& plan, const Cluster& cluster) {
  const Replica& first = plan.replicas.front();
  // The first replica and its first stage stand for the plan. The loops below look for what differs from
  // them.
  const int degree = first.stages.front().tensor_parallel;
  MegatronFlags result;
  result.layout.use_tp_pp_dp_mapping = true;
  result.flags =
      fmt::format("--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --num-layers {}", degree,
                  first.stages.size(), plan.layout().num_layers());
  const bool equal_stages = std::ranges::all_of(first.stages, [&](const Stage& stage) {
    return stage.layers == first.stages.front().layers && stage.chunk_layers.empty();
  });
  if (!equal_stages) {
    result.flags += " --hetero-pipeline-stages" + stages_by_kind(first, cluster);
    std::vector<int> stages = {static_cast<int>(first.stages.size())};
    for (const Stage& stage : first.stages) stages.push_back(stage.layers);
    result.layout.hetero_pipeline_stages = {std::move(stages)};
  }
  const bool equal_micro_batches = std::ranges::all_of(plan.replicas, [&](const Replica& replica) {
    return replica.micro_batch_size == first.micro_batch_size && replica.micro_batches == first.micro_batches;
  });
  if (equal_micro_batches) {
    result.flags += fmt::format(" --micro-batch-size {}", first.micro_batch_size);
  } else {
    result.layout.micro_batch_size_per_dp =
        per_replica(plan, [](const Replica& replica) { return replica.micro_batch_size; });
    result.layout.num_micro_batches_per_dp =
        per_replica(plan, [](const Replica& replica) { return replica.micro_batches; });
    result.flags += fmt::format(" --micro-batch-size-per-dp {} --num-micro-batches-per-dp {}",
                                fmt::join(result.layout.micro_batch_size_per_dp, " "),
                                fmt::join(result.layout.num_micro_batches_per_dp, " "));
  }
  result.flags += fmt::format(" --global-batch-size {} --use-tp-pp-dp-mapping", plan.global_batch_size());
  if (first.chunks() > 1)
    result.flags += fmt::format(" --num-virtual-stages-per-pipeline-rank {}", first.chunks());
  const auto split = [](const std::vector<Stage>& stages) {
    std::vector<std::string> layers;
    for (const Stage& stage : stages) {
      layers.push_back(stage.chunk_layers.empty()
                           ? fmt::format("{}", stage.layers)
                           : fmt::format("({})", fmt::join(stage.chunk_layers, " + ")));
    }
    return fmt::format("{}", fmt::join(layers, " + "));
  };
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const std::vector<Stage>& stages = plan.replicas[r].stages;
    const auto same = [](const Stage& one, const Stage& other) {
      return one.layers == other.layers && one.chunk_layers == other.chunk_layers;
    };
    if (!std::ranges::equal(stages, first.stages, same)) {
      result.warnings.push_back(fmt::format(
          "replica {} is split into {} layers, replica 1 into {}: --hetero-pipeline-stages has one "
          "split for all replicas, that of replica 1 is given",
          r + 1, split(stages), split(first.stages)));
      break;
    }
  }
  result.flags += recomputation_flags(recomputation_of(plan), result.warnings);
  result.flags +=
      optimizer_flags(plan.runtime.use_distributed_optimizer, has_shard_weights(plan), result.warnings);
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto other = std::ranges::find_if(
        plan.replicas[r].stages, [&](const Stage& stage) { return stage.tensor_parallel != degree; });
    if (other == plan.replicas[r].stages.end()) continue;
    result.warnings.push_back(
        fmt::format("replica {} has a stage of tensor-parallel degree {}, the first stage has {}: "
                    "--tensor-model-parallel-size is one degree for all stages, {} is given",
                    r + 1, other->tensor_parallel, degree, degree));
    break;
  }
  return result;
}

std::string mpirun_command(const Plan& plan, const std::string& plan_path,
                           const std::vector<std::string>& arguments) {
  // Open MPI numbers ranks in the order of the applications on the command line. Each run of workers on
  // one node is one application, so rank i is worker i of the plan.
  std::map<std::string, int> slots;
  std::vector<std::pair<std::string, int>> runs;  // ranks that follow each other on one node
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      ++slots[stage.node];
      if (runs.empty() || runs.back().first != stage.node) runs.emplace_back(stage.node, 0);
      ++runs.back().second;
    }
  }
  std::string program = "hdt-train --plan " + shell_word(plan_path);
  for (const std::string& argument : arguments) program += " " + shell_word(argument);
  std::string text = "mpirun --bind-to none";
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& [node, ranks] = runs[i];
    // Open MPI takes the slots of a host from its first mention, so each mention gives the slots for all
    // ranks of the plan on this host.
    text += fmt::format("{} \\\n  -np {} --host {}:{} {}", i == 0 ? "" : " :", ranks, shell_word(node),
                        slots[node], program);
  }
  return text;
}

}  // namespace hdt::plan
