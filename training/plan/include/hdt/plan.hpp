// plan.hpp: the predictor and the search of hdt-plan as a library (libhdtplan). It predicts how long a
// training step of a plan takes on a mixed cluster, and finds the plan with the shortest step. The
// library needs neither libhdt, nor a daemon, nor torch. Its inputs are the files that docs/predictor.md
// describes. All times are seconds, and all sizes are bytes. The functions keep no state that a caller
// can see, so several threads may call them at once. The only exception thrown on purpose is Error.
#ifndef HDT_PLAN_HPP
#define HDT_PLAN_HPP

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__GNUC__)
#define HDT_PLAN_API __attribute__((visibility("default")))
#else
#define HDT_PLAN_API
#endif

namespace hdt::planner {

// An input was refused, or the plan cannot run. what() is one line that names the file, the field where
// there is one, and the reason.
class HDT_PLAN_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Paths of the three TOML files that each prediction needs. They are read anew in every call.
struct Inputs {
  // The nodes, their devices and their kinds of NICs.
  std::string cluster;
  // The layers of the model, with their parameters and their outputs.
  std::string model;
  // The measurements of devices and links. It must cover the model's layers on each device kind it has.
  std::string profile;
};

// One worker: one stage of one replica, on `tensor_parallel` devices of a node. The five times sum to
// the step.
struct Worker {
  // Counted from 0, in the order of the plan's file.
  int replica = 0;
  int stage = 0;
  std::string node;
  // Forwards and backwards. Recomputation is part of the backward.
  double compute = 0;
  // Waiting for a message of a neighbouring stage while that message is on its way.
  double exposed_pipeline = 0;
  // Waiting for the sum of the gradients while it is running.
  double exposed_reduction = 0;
  // Waiting for other workers: for a message that they have not sent yet, for their gradients, or for
  // the end of the step.
  double bubble = 0;
  // The update of the parameters.
  double optimizer = 0;
  double peak_memory_bytes = 0;  // of each of its devices
};

// A predicted training step.
struct Step {
  double seconds = 0;
  std::vector<Worker> workers;  // replica by replica, stage by stage
  // Sentences on micro-batch sizes that lie outside of the measured ones: how their times were computed.
  std::vector<std::string> warnings;
};

// The result of a search.
struct FoundPlan {
  std::string toml;  // the plan, as a file
  double step_seconds = 0;
  // The step if each device computed alone and all the time, at the best rate that was profiled, and if
  // nothing else took time: what the found plan is to be compared with.
  double bound_seconds = 0;
  // True if the search has covered its whole space, so that no plan in it is faster. Clusters of more
  // than 12 devices are searched by heuristics; for them it is always false.
  bool proven = false;
  // What was not played since nodes have no link in the profile, a sentence for each pair of kinds of nodes.
  std::vector<std::string> left_out;
};

// Predicts the step of the plan in the file `plan`. Throws Error if an input is refused, if the plan
// cannot run on the cluster, or if a worker lacks memory.
HDT_PLAN_API Step predict(const Inputs& inputs, const std::string& plan);

// Finds a plan whose replicas process `global_batch_size` samples a step together. The plan uses the
// schedule 1F1B and keeps all activations. Throws Error if an input is refused, if `global_batch_size`
// is less than 1, or if no plan fits memory.
HDT_PLAN_API FoundPlan search(const Inputs& inputs, std::int64_t global_batch_size);

}  // namespace hdt::planner

#endif
