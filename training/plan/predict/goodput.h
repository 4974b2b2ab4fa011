// goodput.h: how much of its time a run on machines that fail spends on training that is kept.
//
// A run trains for an interval, then writes a checkpoint. A failure throws it back to the last
// checkpoint, after a restart, or after a failover if a spare node takes over. Failures of n independent
// parts with exponential lifetimes form a Poisson process together; its rate is the sum of theirs.
//
// The closed form is by Daly ("A higher order estimate of the optimum checkpoint interval for restart
// dumps", 2006, equation 20). A segment has the length w = interval + checkpoint. To get through a
// segment without a failure takes on average, with restarts of length R that can fail as well,
//    E = M e^(R/M) (e^(w/M) - 1)
// M is the mean time between failures. The goodput is interval / E. The best interval solves
// d(interval/E) = 0; Young's and Daly's sqrt(2 checkpoint M) is its first order, and the start of the
// search for it.
#pragma once

#include <cstdint>

namespace hdt::plan {

// The rate and the cost of failures. The parts of the cluster are already put together (reliability.h).
struct FailureModel {
  // The rate of all parts together; 0: nothing fails.
  double failures_per_second = 0;
  // Training waits so long for each checkpoint.
  double checkpoint_seconds = 0;
  // From a failure until training goes on at the last checkpoint.
  double restart_seconds = 0;
};

// Shares of all time; the three of them sum to 1.
struct Goodput {
  // Seconds of training between two checkpoints.
  double interval_seconds = 0;
  // Training that is kept.
  double share = 1;
  // Writing the checkpoints of kept segments.
  double checkpoint_share = 0;
  // Lost work and restarts.
  double failure_share = 0;
};

// By the closed form. `interval_seconds` must be above 0.
Goodput expected_goodput(const FailureModel& model, double interval_seconds);

// With the interval that gives the largest share. Without failures checkpoints are never worth their
// time: interval_seconds is then infinite.
Goodput best_goodput(const FailureModel& model);

// Plays failures until `segments` checkpoints have been written. It shares nothing with the closed form
// but the model, so tests hold one against the other.
Goodput simulated_goodput(const FailureModel& model, double interval_seconds, int64_t segments,
                          uint64_t seed);

}  // namespace hdt::plan
