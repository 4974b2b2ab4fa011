// reliability.h: how often the parts of a cluster fail, and what a failure costs: the file that
// `hdt-plan simulate` reads.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/predict/goodput.h"

namespace hdt::plan {

// The file's contents; hours are turned into seconds.
struct Reliability {
  // As in FailureModel (goodput.h).
  double checkpoint_seconds = 0;
  double restart_seconds = 0;
  // From a node's failure until training goes on, if a spare node takes over instead of a restart. 0:
  // there are no spares.
  double failover_seconds = 0;
  int spare_nodes = 0;
  // From a node's failure until it is repaired. Until then one spare node fewer is free.
  double repair_seconds = 0;
  // Mean time between failures of one device, by device kind. Kinds that are missing do not fail.
  std::map<std::string, double> device_mtbf_seconds;
  // The same of a node besides its devices. 0: nodes do not fail.
  double node_mtbf_seconds = 0;
};

// Reads a TOML file (docs/predictor.md). An error is kConfig and names the file, the field and the
// reason.
Result<Reliability> read_reliability(const std::string& path);

// Puts the failures of all nodes of the cluster together. restart_seconds becomes the mean of failover
// and restart, weighted by the probability that a spare is free. The number of nodes in repair is taken
// as that of an M/G/infinity queue: Poisson, with the mean rate x repair time. That assumes that spares
// fail no more often than other nodes.
FailureModel failure_model(const Cluster& cluster, const Reliability& reliability);

}  // namespace hdt::plan
