// class_search.h: plans for large clusters, put together from classes of equal replicas.
//
// 1. The length of the step is bisected. For each length, class_mix.h gives the mix of classes that can
//    process the most samples. The mix of the shortest length that is enough for the global batch
//    becomes a plan; its micro-batches go one by one to the replica that ends first.
// 2. That is done with all variants (tensor-parallel degree, micro-batch size) together, with each
//    variant alone, and with other selections of classes.
// 3. The plans are played, the one with the shortest estimate first, until the next estimate is longer
//    than the best step that was played.
// 4. The best plan is improved: a layer moves from a stage to its neighbour in all replicas of a class,
//    as long as the steps get shorter.
//
// Nothing here is proved to be the best. search.h says so, and how far away the bound is.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/search/class_mix.h"
#include "training/plan/search/replica_kind.h"
#include "training/plan/search/shape_search.h"

namespace hdt::plan {

// One search for one schedule. It runs on the caller's thread. Everything that is passed to the
// constructor must outlive it.
class ClassSearch {
 public:
  ClassSearch(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state);
  // False: no device kind of the cluster is profiled for this model.
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
    double seconds = 0;  // of its step, hardly ever less than is played
  };
  // The shortest step that these classes can make, by estimate.
  Candidate shortest_mix(const std::vector<ReplicaKind>& classes) const;
  // Nothing if micro-batches cannot be given out, or nodes have no room.
  std::optional<Plan> plan_of(const Uses& uses) const;
  // Plays the plan; true if it is the best so far.
  bool play(const Uses& uses);
  // Moves single layers as long as the step gets shorter, and plays each improvement.
  void improve(Uses uses);
  // Finds out how much memory is missing, for the message that nothing fits.
  void note_excess();

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  SearchState& state_;
  const ClassMaker maker_;
};

}  // namespace hdt::plan
