// engine_limits.cc: the rules of each engine. Those of SynerFuse were read in its arguments.py at commit
// 4460611 (convert/fork_warnings.cc has the same ones for flags).
#include "training/plan/search/engine_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace hdt::plan {
namespace {

// Numbers of micro-batches that replicas of SynerFuse may have.
constexpr size_t kMostCounts = 2;

Status refuse(const std::string& reason) { return {Code::kConfig, reason}; }

bool same_layers(const Stage& one, const Stage& other) {
  return one.layers == other.layers && one.chunk_layers == other.chunk_layers;
}

Status check_megatron(const Plan& plan) {
  const Replica& first = plan.replicas.front();
  const int degree = first.stages.front().tensor_parallel;
  bool equal_stages = true;
  std::set<int> sizes;
  std::set<int> counts;
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const Replica& replica = plan.replicas[r];
    if (!std::ranges::equal(replica.stages, first.stages, same_layers))
      return refuse(
          fmt::format("replica {}.stage: layers other than those of replica 1; SynerFuse has one "
                      "split for all replicas",
                      r + 1));
    for (const Stage& stage : replica.stages) {
      if (stage.tensor_parallel != degree)
        return refuse(
            fmt::format("replica {}.stage.tensor_parallel: {} given beside {}; SynerFuse has one "
                        "degree for all stages",
                        r + 1, stage.tensor_parallel, degree));
      equal_stages = equal_stages && same_layers(stage, first.stages.front());
    }
    sizes.insert(replica.micro_batch_size);
    counts.insert(replica.micro_batches);
  }
  if (counts.size() > kMostCounts)
    return refuse(fmt::format("replica.micro_batches: {} different numbers given; SynerFuse has at most {}",
                              counts.size(), kMostCounts));
  if (equal_stages) return Status::ok();
  if (sizes.size() > 1 || counts.size() > 1)
    return refuse(
        "replica.micro_batches: stages differ and so do micro-batches; SynerFuse refuses "
        "--hetero-pipeline-stages beside --micro-batch-size-per-dp");
  if (first.chunks() > 1)
    return refuse(
        "replica.stage.layers: stages differ and have several chunks of the model; SynerFuse refuses "
        "--hetero-pipeline-stages with these");
  return Status::ok();
}

}  // namespace

ReductionKind reduction_of(Engine engine) {
  return engine == Engine::kHdtTrain ? ReductionKind::kHdt : ReductionKind::kRing;
}

Profile profile_for(Engine engine, const Profile& profile) {
  Profile limited = profile;
  if (engine == Engine::kHdtTrain)
    std::erase_if(limited.compute, [](const auto& entry) { return entry.first.tensor_parallel != 1; });
  return limited;
}

Status check_runs_on(Engine engine, const Plan& plan) {
  if (engine == Engine::kMegatron) return check_megatron(plan);
  if (engine == Engine::kAny) return Status::ok();
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    for (const Stage& stage : plan.replicas[r].stages) {
      if (stage.tensor_parallel != 1)
        return refuse(
            fmt::format("replica {}.stage.tensor_parallel: {} given; hdt-train has no tensor "
                        "parallelism, expected 1",
                        r + 1, stage.tensor_parallel));
    }
  }
  return Status::ok();
}

}  // namespace hdt::plan
