// reliability.h: how often the parts of a cluster fail, and what it costs: a file that `hdt-plan simulate`
// reads.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/predict/goodput.h"

namespace hdt::plan {

struct Reliability {
  double checkpoint_seconds = 0;
  double restart_seconds = 0;
  // A spare node takes over instead of a restart: then this is what a node's failure costs.
  double failover_seconds = 0;  // 0: there is none
  int spare_nodes = 0;
  double repair_seconds = 0;                          // of a node; until then its spare is taken
  std::map<std::string, double> device_mtbf_seconds;  // by device kind; missing: they do not fail
  double node_mtbf_seconds = 0;                       // of a node besides its devices; 0: it does not fail
};

// As TOML (docs/predictor.md); kConfig with file, field and reason.
Result<Reliability> read_reliability(const std::string& path);

// Failures of all nodes together. The time to train again is the mean of failover and restart, by the chance
// that a spare is free: with spares that fail no more than the others and are repaired in repair_seconds, the
// nodes in repair are those of an M/G/infinity queue, Poisson with mean rate x repair time.
FailureModel failure_model(const Cluster& cluster, const Reliability& reliability);

}  // namespace hdt::plan
