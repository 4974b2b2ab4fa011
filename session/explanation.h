// explanation.h: a decision of the tuner for people: every algorithm, which was picked, and why the others were not.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost_model.h"
#include "session/tuner.h"

namespace hdt::session {

struct Explanation {
  Decision decision;
  std::string why;
  // Every algorithm once: those that the call can take, the fastest first, then those left out. 0 seconds: nothing is predicted.
  std::vector<collectives::Candidate> candidates;
};

Explanation explain(Tuner& tuner, const Call& call, const std::string& group_class);

}  // namespace hdt::session
