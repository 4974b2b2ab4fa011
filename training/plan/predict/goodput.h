// goodput.h: how much of its time a run on machines that fail spends on training.
//
// A run trains for an interval, then writes a checkpoint; a failure throws it back to the last checkpoint,
// after a restart (or, where a spare takes over, a failover). Failures of n independent parts with
// exponential lifetimes are together a Poisson process whose rate is the sum of theirs.
//
// In closed form (Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006,
// equation 20): to get through a segment of w = interval + checkpoint without a failure takes, with restarts
// of R that can fail as well,
//     E = M e^(R/M) (e^(w/M) - 1)
// on average, M being the mean time between failures; the goodput is interval / E. The best interval solves
// d(interval/E) = 0; Young's and Daly's sqrt(2 checkpoint M) is its first order and the start of the search
// for it.
#pragma once

#include <cstdint>

namespace hdt::plan {

struct FailureModel {
  double failures_per_second = 0;  // of all parts together
  double checkpoint_seconds = 0;   // training waits so long for each
  double restart_seconds = 0;      // from a failure to training again, at the last checkpoint
};

struct Goodput {
  double interval_seconds = 0;  // of training between two checkpoints
  double share = 1;             // of all time that is training which is kept
  double checkpoint_share = 0;  // writing checkpoints, of kept segments
  double failure_share = 0;     // lost work and restarts
};

// `interval_seconds` above 0.
Goodput expected_goodput(const FailureModel& model, double interval_seconds);

// With the interval that gives the largest share. Without failures there is none: checkpoints are then never
// worth their time, and interval_seconds is infinite.
Goodput best_goodput(const FailureModel& model);

// The same by playing failures until `segments` checkpoints have been written: a check on the closed form
// that shares nothing with it but the model.
Goodput simulated_goodput(const FailureModel& model, double interval_seconds, int64_t segments,
                          uint64_t seed);

}  // namespace hdt::plan
