// strategy.h: what every form of a layout comes down to: replicas, their virtual stages and micro-batches,
// and where each stage is. Forms are read into a Strategy and written from one.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/engine/layout.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// A stage of a replica, beside its layers.
struct Worker {
  // The kind of its device. Workers with the same text are on devices of one kind; it is a made-up name where
  // the form has none.
  std::string kind;
  // A node of the cluster, or a made-up name.
  std::string node;
  // As in Stage.
  int recomputed_layers = 0;
  double optimizer_shard_weight = 1;
  bool attention_only = false;
};

// A value. `workers` has an entry for each stage of each replica of the layout.
struct Strategy {
  training::Layout layout;
  std::vector<std::vector<Worker>> workers = {};  // by replica, stage
  // True: ranks are numbered replica by replica (--use-tp-pp-dp-mapping). False: stage by stage.
  bool replica_by_replica = true;
  // How hdt-train carries it out.
  Runtime runtime = {};

  const Worker& worker(training::Position position) const {
    return workers[static_cast<size_t>(position.replica)][static_cast<size_t>(position.stage)];
  }
};

// A strategy, or a text made of one, with a sentence for each thing that another framework does not do, or
// does not as HDT does it.
template <typename T>
struct Warned {
  T value;
  std::vector<std::string> warnings = {};
};

// Puts the ranks, whose positions are given in the order of their numbers, on the devices of the cluster,
// node after node, as launchers do. With `kinds`, nodes go first by the place of their device's kind in this
// list, and nodes of other kinds stay empty (as FlagScale numbers its ranks). kConfig if there are too few
// devices.
Status place(Strategy& strategy, const std::vector<training::Position>& ranks, const Cluster& cluster,
             const std::vector<std::string>& kinds = {});
// The positions by rank, as the layout numbers them.
std::vector<training::Position> positions_by_rank(const training::Layout& layout);

// Reads a plan. Without a cluster (nullptr) the nodes of the plan stand for kinds of devices. kConfig if a
// stage is tensor-parallel, or on a node that the cluster does not have; warns of settings that only a plan
// has.
Result<Warned<Strategy>> strategy_of_plan(const Plan& plan, const Cluster* cluster);
// The plan; with several chunks on a stage its schedule is interleaved 1F1B. kConfig if that cannot run it.
Result<Plan> plan_of_strategy(const Strategy& strategy);

// "3 + 1", with " | " between chunks: the layers of a replica, for messages.
std::string split_text(const training::Replica& replica);

}  // namespace hdt::plan
