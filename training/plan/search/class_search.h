// class_search.h: plans for large clusters, put together from classes of equal replicas.
//
// The step is bisected: for each length, the mix of classes (class_mix.h) that can take most samples. The
// shortest that can take the global batch is made a plan, its micro-batches given out one by one to the
// replica that ends first. That is done with all variants (tensor-parallel degree, micro-batch size) together
// and with each alone; the plans are played, shortest first, until what the next one was estimated to take is
// longer than what was played. The best is then improved: a layer goes from a stage to its neighbour in all
// replicas of a class, as long as steps get shorter. Nothing here is proved to be the best; search.h says so,
// and how far the bound is.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/search/class_mix.h"
#include "training/plan/search/replica_class.h"
#include "training/plan/search/shape_search.h"

namespace hdt::plan {

class ClassSearch {
 public:
  ClassSearch(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state);
  // False: no device kind of the cluster is profiled for this model.
  bool run();

 private:
  struct Use {
    ReplicaClass made;
    int replicas = 0;
  };
  using Uses = std::vector<Use>;

  struct Candidate {
    Uses uses;
    double seconds = 0;  // of its step, hardly ever less than is played
  };
  Candidate shortest_mix(const std::vector<ReplicaClass>& classes) const;
  // Nothing if micro-batches cannot be given out, or nodes have no room.
  std::optional<Plan> plan_of(const Uses& uses) const;
  // Plays the plan; true if it is the best so far.
  bool play(const Uses& uses);
  void improve(Uses uses);
  void note_excess();

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  SearchState& state_;
  const ClassMaker maker_;
};

}  // namespace hdt::plan
