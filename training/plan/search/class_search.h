// class_search.h: plans for large clusters, put together from classes of equal replicas.
//
// 1. The length of the step is bisected. For each length, class_mix.h gives the mix of classes that can
//    process the most samples. The mix of the shortest length that is enough for the global batch
//    becomes a plan; its micro-batches go one by one to the replica that ends first.
// 2. That is done with all variants (tensor-parallel degree, micro-batch size) together, with each
//    variant alone, with each number of stages, and with other selections of classes.
// 3. Each mix is placed in several ways (placement.h). The plans are played in the order of their estimates
//    (plan_gauge.h), which have reductions and messages over the links that they take.
//
// Nothing here is proved to be the best. search.h says so, and how far away the bound is.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/search/candidates.h"
#include "training/plan/search/class_mix.h"
#include "training/plan/search/replica_kind.h"
#include "training/plan/search/shape_search.h"

namespace hdt::plan {

// One search for one schedule. It runs on the caller's thread. Everything that is passed to the
// constructor must outlive it.
class ClassSearch {
 public:
  // With sharded optimizer states the memory of a stage depends on how many replicas share them, which is not
  // known before the mix. So only plans of at least `fewest_replicas` are played, and each stage is taken to
  // keep that part.
  ClassSearch(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state,
              int fewest_replicas = 1);
  // Plays the plans of the most promising mixes. False: no device kind of the cluster is profiled for this
  // model.
  bool run();

 private:
  // A class with its number of replicas.
  struct Use {
    ReplicaKind made;
    int replicas = 0;
  };
  using Uses = std::vector<Use>;

  // A mix, and the length of the step in which it processes the global batch.
  struct Candidate {
    Uses uses;
    double seconds = 0;  // of its step, without reductions
  };
  // The shortest step that these classes can make, by estimate.
  Candidate shortest_mix(const std::vector<ReplicaKind>& classes) const;
  // The plan without nodes and micro-batches, and the kinds of its stages.
  Plan plan_of(const Uses& uses, std::vector<std::vector<int>>& kinds) const;
  // Adds the mix in each placement to the pool.
  void place(const Uses& uses, Candidates& pool);
  // Finds out how much memory is missing, for the message that nothing fits.
  void note_excess();

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  SearchState& state_;
  const int fewest_replicas_;
  const ClassMaker maker_;
  PlanGauge gauge_;
};

}  // namespace hdt::plan
