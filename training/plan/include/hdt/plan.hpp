// plan.hpp: the predictor and the search of hdt-plan as a library (libhdtplan): what a training step of a
// plan takes on a mixed cluster, and the plan that takes least. It needs neither libhdt, nor a daemon, nor
// torch. Inputs are the files that docs/predictor.md describes. Functions may be called by several threads at
// once.
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

// An input that was refused, or a plan that cannot run: what() names file, field and reason.
class HDT_PLAN_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Paths of TOML files.
struct Inputs {
  std::string cluster;
  std::string model;
  std::string profile;
};

// One stage of one replica. Its seconds sum to the step.
struct Worker {
  int replica = 0;
  int stage = 0;
  std::string node;
  double compute = 0;
  double exposed_pipeline = 0;
  double exposed_reduction = 0;
  double bubble = 0;
  double optimizer = 0;
  double peak_memory_bytes = 0;  // of each of its devices
};

struct Step {
  double seconds = 0;
  std::vector<Worker> workers;  // replica by replica, stage by stage
};

struct FoundPlan {
  std::string toml;  // the plan, as a file
  double step_seconds = 0;
  double bound_seconds = 0;  // every device alone, nothing lost
  bool proven = false;       // no plan of the searched space is faster
};

// The step of the plan in the file `plan`, which must fit memory.
HDT_PLAN_API Step predict(const Inputs& inputs, const std::string& plan);

HDT_PLAN_API FoundPlan search(const Inputs& inputs, std::int64_t global_batch_size);

}  // namespace hdt::planner

#endif
