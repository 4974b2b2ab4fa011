// reliability.cc: reads the file, and adds up the rates of many parts.
#include "training/plan/predict/reliability.h"

#include <algorithm>
#include <cmath>

#include "training/plan/describe/toml_fields.h"

namespace hdt::plan {
namespace {

// The probability that fewer than `spares` nodes are in repair, if their number has a Poisson
// distribution. Terms are computed as logarithms, since mean^n and n! would overflow.
double spare_is_free(double mean_in_repair, int spares) {
  double probability = 0;
  for (int n = 0; n < spares; ++n) {
    const double logarithm = -mean_in_repair +
                             (mean_in_repair > 0 ? n * std::log(mean_in_repair)
                              : n == 0           ? 0
                                                 : -INFINITY) -
                             std::lgamma(n + 1.0);
    probability += std::exp(logarithm);
  }
  return std::min(1.0, probability);
}

}  // namespace

Result<Reliability> read_reliability(const std::string& path) {
  return read_toml<Reliability>(path, [](TomlFields& fields) {
    Reliability result;
    result.checkpoint_seconds = fields.positive("checkpoint_seconds");
    result.restart_seconds = fields.positive("restart_seconds");
    result.node_mtbf_seconds = 3600 * fields.positive_or("node_mtbf_hours", 0);
    result.spare_nodes = static_cast<int>(fields.count_or("spare_nodes", 0));
    // Without spares there is no failover, and a node's repair delays nobody.
    if (result.spare_nodes > 0) {
      result.failover_seconds = fields.positive("failover_seconds");
      result.repair_seconds = 3600 * fields.positive("repair_hours");
    }
    for (TomlFields& entry : fields.tables("device", 0)) {
      const std::string kind = entry.text("kind");
      const double mtbf = 3600 * entry.positive("mtbf_hours");
      entry.end();
      if (!result.device_mtbf_seconds.emplace(kind, mtbf).second)
        entry.fail("kind", "this kind was given before");
    }
    return result;
  });
}

FailureModel failure_model(const Cluster& cluster, const Reliability& reliability) {
  FailureModel model;
  for (const Node& node : cluster.nodes) {
    const auto found = reliability.device_mtbf_seconds.find(node.device);
    if (found != reliability.device_mtbf_seconds.end())
      model.failures_per_second += node.devices / found->second;
    if (reliability.node_mtbf_seconds > 0) model.failures_per_second += 1 / reliability.node_mtbf_seconds;
  }
  model.checkpoint_seconds = reliability.checkpoint_seconds;
  // All failures count as a node's: a spare takes over for a node whose device has failed, too.
  const double free =
      spare_is_free(model.failures_per_second * reliability.repair_seconds, reliability.spare_nodes);
  model.restart_seconds = free * reliability.failover_seconds + (1 - free) * reliability.restart_seconds;
  return model;
}

}  // namespace hdt::plan
