// interleaved_search.h: plans whose stages have several chunks of the model, made from plans of one chunk.
//
// There are too many ways to cut a model into chunks to look at each. So a plan of one chunk is taken as a
// base: which devices make which stage, and how many layers each has. For each number of chunks
// 1. every stage's layers are cut into equal chunks, in all replicas of at least two stages that have so many
//    layers; a stage with fewer layers than chunks gets some of the others';
// 2. the micro-batches are given out again, as a replica with chunks needs a multiple of its stages;
// 3. the plan is played if it fits memory (with recomputation if that is allowed) and if the computation of
//    no stage alone takes as long as the best step.
//
// At the end the best plan of each number of chunks is improved: single layers move between the chunks of a
// stage and between neighbouring stages, in all equal replicas alike, as long as steps get shorter.
//
// Nothing here is proved to be the best. Plans are only offered, so the best plan of a search never gets
// slower.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "training/plan/search/shape_search.h"

namespace hdt::plan {

// One search for interleaved 1F1B. Runs on the caller's thread. Everything that is passed to the constructor
// must outlive it.
class InterleavedSearch {
 public:
  // The numbers of chunks that are tried.
  static constexpr int kFewestChunks = 2;
  static constexpr int kMostChunks = 4;

  // `options` with the runtime of the plans. At most `most_plays` steps are played.
  InterleavedSearch(const PredictionInputs& inputs, const SearchOptions& options, int64_t most_plays,
                    SearchState& state);
  // Tries each number of chunks on a plan of one chunk that check_plan() accepts. Its schedule, recomputation
  // and classes are not looked at. False: the budget is used up.
  bool try_base(const Plan& base);
  // Improves the best plan of each number of chunks that was played, with at most `most_moves` plays for
  // each.
  void improve(int most_moves);
  // Steps that were played.
  int64_t plays() const { return plays_; }

 private:
  // Replicas that are alike: equal splits and degrees, on nodes of the same kinds and memory.
  struct Alike {
    // One of them, with its number of micro-batches; 0 until share_out().
    Replica one;
    // The others' indices in the base, with its own.
    std::vector<size_t> members;
    // Seconds of a micro-batch on the stage that takes longest, and on the whole pipeline.
    double period = 0;
    double fill = 0;
    // Micro-batches come in multiples of this: the stages where there are chunks, else 1.
    int unit = 1;
  };
  // A plan as its kinds of replicas.
  struct Candidate {
    Plan base;
    std::vector<Alike> kinds;
    // By replica of the base.
    std::vector<int> micro_batches;
  };
  // The fastest candidate that was played, and its step.
  struct Best {
    Candidate candidate;
    double seconds = std::numeric_limits<double>::infinity();
  };

  const Node& node_of(const Stage& stage) const { return *nodes_.at(stage.node); }
  // Whether the replicas of a base do the same: their nodes are compared by kind and memory.
  bool alike(const Replica& one, const Replica& other) const;
  // The base with so many chunks on each stage that can have them; nothing if none can.
  std::optional<Candidate> cut(const Plan& base, int chunks) const;
  // Fills in the times of a kind.
  void time_kind(const Plan& base, Alike& kind) const;
  // Gives out the micro-batches. False if they cannot be.
  bool share_out(Candidate& candidate) const;
  Plan plan_of(const Candidate& candidate) const;
  // Recomputes as few layers as each stage needs to fit. False if one does not fit; then the state notes how
  // much is missing.
  bool fit(Candidate& candidate);
  // Seconds of the plan's step if it fits and may be shorter than `limit`.
  std::optional<double> play(Candidate& candidate, double limit);
  // As long as fewer than `until` steps were played in all.
  void improve(Best& best, int64_t until);
  // Moves a layer of a kind between two virtual stages. False if the first has only one.
  static bool move_layer(Alike& kind, int from_stage, int from_chunk, int to_stage, int to_chunk);

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  const int64_t most_plays_;
  SearchState& state_;
  // By name. A table, as there may be thousands.
  std::unordered_map<std::string_view, const Node*> nodes_;
  int64_t plays_ = 0;
  // By number of chunks.
  std::map<int, Best> best_;
};

}  // namespace hdt::plan
