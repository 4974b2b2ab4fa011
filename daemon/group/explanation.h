// explanation.h: a decision of the tuner in words, for `hdtctl explain`: every algorithm, which one was
// picked, and why not the others. Called by the engine that runs the group, on its thread, so it asks
// the very tuner that decides.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost_model.h"
#include "daemon/group/tuner.h"

namespace hdt::daemon {

// The answer of explain().
struct Explanation {
  // why the picked algorithm was picked, for people
  Decision decision;
  std::string why;
  // Seconds that a rank and its daemon need to hear of each other during the call. It is part of every
  // candidate's time.
  double hand_over_s = 0;
  // Every algorithm once: first those that the call can take, the fastest at the front, then those left
  // out, each with the reason. 0 seconds: nothing is predicted for it.
  std::vector<collectives::Candidate> candidates;
  // By node: the part of a chunk that it combines, in units of collectives::kWeightUnits. Empty: the parts
  // are equal, or they are the blocks of the nodes' ranks.
  std::vector<uint32_t> weights;
  // Where the weights are from, by node: of its links as they are now, its engine and its ranks. Empty as
  // `weights`.
  std::vector<collectives::OwnerRates> rates;
  // With equal parts, all would wait for this node, which gets less for that: for its memory, as its engine
  // combines, or for its links. Without meaning if `weights` is empty.
  size_t slowest_node = 0;
  bool waits_for_memory = false;
  // Seconds that the call would take with equal parts, counted as those of a candidate. 0 if `weights` is
  // empty.
  double equal_parts_s = 0;
};

// Seconds for Explanation::hand_over_s, from the round trips in ns that the ranks of this node have measured
// with their daemon (`RankState::echo_ns`; 0: not measured). These numbers lie in the ranks' memory and are
// foreign, so the result is bounded. The slowest rank counts; an assumed value, if none has measured.
double hand_over_seconds(const std::vector<uint64_t>& echoes_ns);

// Explains what `tuner` decides for `call`, which must be valid. May make a ranking, which takes
// milliseconds.
Explanation explain(Tuner& tuner, const ipc::Call& call, const std::string& group_class, double hand_over_s);

}  // namespace hdt::daemon
