// explanation.h: a decision of the tuner for people: every algorithm, which was picked, and why the others
// were not.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost_model.h"
#include "daemon/group/tuner.h"

namespace hdt::daemon {

struct Explanation {
  Decision decision;
  std::string why;
  double way_s = 0;  // from the rank that calls to its daemon and back, in every candidate's time
  // Every algorithm once: those that the call can take, the fastest first, then those left out. 0 seconds:
  // nothing is predicted.
  std::vector<collectives::Candidate> candidates;
};

// From what the ranks of a node have measured (Board.echo_ns, 0 where one has not), as it is found in their
// memory.
double way_of_a_call(const std::vector<uint64_t>& echoes_ns);

Explanation explain(Tuner& tuner, const session::Call& call, const std::string& group_class, double way_s);

}  // namespace hdt::daemon
