// fork_warnings.cc: where SynerFuse differs. Each sentence names what its code does; the names of files are
// those of SynerFuse's repository at commit 4460611.
#include <fmt/format.h>

#include <cstdint>
#include <set>

#include "training/plan/convert/megatron_form.h"

namespace hdt::plan {
namespace {

// A group of "n0 value0 n1 value1 ...".
struct ReplicaGroup {
  int replicas = 0;
  int first = 0;  // of these replicas
};

std::vector<ReplicaGroup> replica_groups(const std::vector<int>& values) {
  std::vector<ReplicaGroup> groups;
  int first = 0;
  for (size_t i = 0; i < values.size(); i += 2) {
    groups.push_back({values[i], first});
    first += values[i];
  }
  return groups;
}

bool same_groups(const std::vector<int>& a, const std::vector<int>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i += 2) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

// SynerFuse weighs the gradient of replica r by its samples over a sum that has one term for each group, the
// group's size of micro-batches times the count of micro-batches of the *replica* with the group's number
// (arguments.py, sum_micro_batches).
int64_t divisor_of(const std::vector<ReplicaGroup>& groups, const training::Layout& layout) {
  int64_t sum = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    sum += int64_t{layout.replica(groups[g].first).micro_batch_size} *
           layout.replica(static_cast<int>(g)).num_micro_batches;
  return sum;
}

void warn_of_counts(const training::LayoutFlags& flags, const training::Layout& layout,
                    std::vector<std::string>& warnings) {
  if (flags.micro_batch_size_per_dp.empty()) {
    warnings.emplace_back(
        "SynerFuse reads --num-micro-batches-per-dp only beside --micro-batch-size-per-dp, and stops without "
        "it");
    return;
  }
  if (!same_groups(flags.micro_batch_size_per_dp, flags.num_micro_batches_per_dp)) {
    warnings.emplace_back(
        "SynerFuse refuses --micro-batch-size-per-dp and --num-micro-batches-per-dp with different groups of "
        "replicas");
    return;
  }
  std::set<int> counts;
  for (int r = 0; r < layout.num_replicas(); ++r) counts.insert(layout.replica(r).num_micro_batches);
  if (counts.size() > 2)
    warnings.push_back(fmt::format(
        "SynerFuse refuses {} different numbers of micro-batches: it has at most 2", counts.size()));
  const std::vector<ReplicaGroup> groups = replica_groups(flags.micro_batch_size_per_dp);
  // data_samplers.py: a replica begins one micro-batch behind its neighbour, and goes on by one micro-batch.
  for (const ReplicaGroup& group : groups) {
    if (group.replicas < 2 || layout.replica(group.first).num_micro_batches < 2) continue;
    warnings.push_back(
        fmt::format("SynerFuse gives neighbouring replicas of a group overlapping samples: replicas {} and "
                    "{} share {} of {} "
                    "micro-batches; HDT gives each sample once",
                    group.first + 1, group.first + 2, layout.replica(group.first).num_micro_batches - 1,
                    layout.replica(group.first).num_micro_batches));
    break;
  }
  const int64_t divisor = divisor_of(groups, layout);
  const int64_t samples = layout.global_batch_size();
  if (divisor != samples)
    warnings.push_back(fmt::format(
        "SynerFuse divides gradients by {}, a sum over groups instead of over the {} samples of a step: "
        "they are {:.4g} times as large as HDT's",
        divisor, samples, static_cast<double>(samples) / static_cast<double>(divisor)));
}

}  // namespace

std::vector<std::string> fork_warnings(const training::LayoutFlags& flags, const training::Layout& layout) {
  std::vector<std::string> warnings;
  const bool sizes = !flags.micro_batch_size_per_dp.empty();
  if (flags.hetero_pipeline_stages.size() > 1)
    warnings.emplace_back(
        "--hetero-pipeline-stages is given several times: hdt-train takes one for each replica, the forks "
        "take the "
        "last one for all");
  if (!flags.hetero_pipeline_stages.empty() && sizes)
    warnings.emplace_back("SynerFuse refuses --hetero-pipeline-stages beside --micro-batch-size-per-dp");
  if (!flags.hetero_pipeline_stages.empty() && layout.replica(0).chunks > 1)
    warnings.emplace_back(
        "SynerFuse refuses --hetero-pipeline-stages with several chunks of the model on a stage");
  if (sizes && !flags.use_tp_pp_dp_mapping)
    warnings.emplace_back("SynerFuse refuses --micro-batch-size-per-dp without --use-tp-pp-dp-mapping");
  if (!flags.num_micro_batches_per_dp.empty()) {
    warn_of_counts(flags, layout, warnings);
  } else if (sizes) {
    // Each replica's gradient is the mean of its own samples, and all replicas weigh alike.
    std::set<int> different;
    for (int r = 0; r < layout.num_replicas(); ++r) different.insert(layout.replica(r).micro_batch_size);
    if (different.size() > 1)
      warnings.emplace_back(
          "SynerFuse averages the means of the replicas, so samples of small micro-batches weigh more; HDT "
          "weighs "
          "all samples alike");
  }
  return warnings;
}

}  // namespace hdt::plan
