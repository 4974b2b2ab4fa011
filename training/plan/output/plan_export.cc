// plan_export.cc: writes a plan as command lines.
#include "training/plan/output/plan_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

namespace hdt::plan {
namespace {

// " n0 value0 n1 value1 ...": runs of replicas with the same value, as Megatron's forks take them.
template <typename Value>
std::string per_replica(const Plan& plan, Value value) {
  std::vector<std::pair<int, int>> runs;
  for (const Replica& replica : plan.replicas) {
    if (runs.empty() || runs.back().second != value(replica)) runs.emplace_back(0, value(replica));
    ++runs.back().first;
  }
  std::string text;
  for (const auto& [count, common] : runs) text += fmt::format(" {} {}", count, common);
  return text;
}

// " n0 layers_0_0 layers_0_1 ... n1 layers_1_0 ...": runs of stages on the same device kind, each with
// its number of stages and the layers of each.
std::string stages_by_kind(const Replica& replica, const Cluster& cluster) {
  std::string text;
  std::vector<int> layers;
  std::string kind;
  // Writes the stages that were collected so far.
  const auto end_run = [&] {
    if (!layers.empty()) text += fmt::format(" {} {}", layers.size(), fmt::join(layers, " "));
    layers.clear();
  };
  for (const Stage& stage : replica.stages) {
    const std::string& device = cluster.nodes[cluster.index_of(stage.node)].device;
    if (device != kind) end_run();
    kind = device;
    layers.push_back(stage.layers);
  }
  end_run();
  return text;
}

// --recompute-num-layers is one number for all stages. The largest that any stage needs is given, so
// that all of them fit memory; the others recompute more than they have to.
void add_recomputation(const Plan& plan, MegatronFlags& result) {
  int most = 0;
  int least = std::numeric_limits<int>::max();
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      most = std::max(most, stage.recomputed_layers);
      least = std::min(least, stage.recomputed_layers);
    }
  }
  if (most == 0) return;
  result.flags +=
      fmt::format(" --recompute-granularity full --recompute-method block --recompute-num-layers {}", most);
  if (least == most) return;
  result.warnings.push_back(fmt::format(
      "stages recompute {} to {} layers: --recompute-num-layers is one number for all, the largest is given",
      least, most));
}

}  // namespace

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
  result.flags = fmt::format(
      "--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --num-layers {} "
      "--hetero-pipeline-stages{} --micro-batch-size-per-dp{} --num-micro-batches-per-dp{} "
      "--global-batch-size {} --use-tp-pp-dp-mapping",
      degree, first.stages.size(), plan.layout().num_layers(), stages_by_kind(first, cluster),
      per_replica(plan, [](const Replica& replica) { return replica.micro_batch_size; }),
      per_replica(plan, [](const Replica& replica) { return replica.micro_batches; }),
      plan.global_batch_size());
  const auto split = [](const std::vector<Stage>& stages) {
    std::vector<int> layers;
    for (const Stage& stage : stages) layers.push_back(stage.layers);
    return fmt::format("{}", fmt::join(layers, " + "));
  };
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const std::vector<Stage>& stages = plan.replicas[r].stages;
    if (!std::ranges::equal(stages, first.stages, {}, &Stage::layers, &Stage::layers)) {
      result.warnings.push_back(fmt::format(
          "replica {} is split into {} layers, replica 1 into {}: --hetero-pipeline-stages has one "
          "split for all replicas, that of replica 1 is given",
          r + 1, split(stages), split(first.stages)));
      break;
    }
  }
  add_recomputation(plan, result);
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
