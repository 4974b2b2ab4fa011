// library.cc: the functions of hdt/plan.hpp, as calls of the predictor and the search.
//
// Inside, errors are `Status` and `Result`. They become exceptions here and nowhere else, since the
// library's users do not have base/status.h.
#include <fmt/format.h>

#include "hdt/plan.hpp"
#include "training/plan/describe/micro_batch_sizes.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::planner {
namespace {

// Takes the value, or throws the error's message as it is: the readers' messages already name the file.
template <typename T>
T value_of(Result<T> result) {
  if (!result.is_ok()) throw Error(result.status().message());
  return result.take();
}

// For messages that do not name a file: `where` goes before them.
void check(const Status& status, const std::string& where) {
  if (!status.is_ok()) throw Error(where + ": " + status.message());
}

// The three inputs, read and checked against each other. PredictionInputs holds references into it, so
// it must outlive what inputs() returns.
struct Read {
  explicit Read(const Inputs& files)
      : cluster(value_of(plan::read_cluster(files.cluster))),
        model(value_of(plan::read_model(files.model))),
        profile(value_of(plan::read_profile(files.profile))) {
    check(plan::check_profile(profile, model), files.profile);
  }
  plan::PredictionInputs inputs() const { return {cluster, model, profile, {}}; }

  plan::Cluster cluster;
  plan::Model model;
  plan::Profile profile;
};

}  // namespace

Step predict(const Inputs& inputs, const std::string& path) {
  Read read(inputs);
  const plan::Plan plan = value_of(plan::read_plan(path));
  std::vector<std::string> warnings = plan::derive_micro_batch_sizes(read.profile, read.cluster, plan);
  const auto prediction = plan::predict(read.inputs(), plan);
  check(prediction.status(), path);
  // A plan that lacks memory would never finish a step, so it has no time to report.
  const plan::MemoryExcess excess = plan::memory_excess(read.cluster, plan, prediction.value());
  if (excess.bytes > 0)
    throw Error(fmt::format("{}: does not fit: worker {} lacks {:.3f} GiB on each device", path,
                            excess.worker, excess.bytes / (1 << 30)));
  Step step{prediction.value().step_seconds, {}, std::move(warnings)};
  const training::Layout layout = plan.layout();
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    const plan::WorkerTime& time = prediction.value().workers[worker];
    step.workers.push_back({position.replica, position.stage,
                            plan.replicas[position.replica].stages[position.stage].node, time.compute,
                            time.exposed_pipeline, time.exposed_reduction, time.bubble, time.optimizer,
                            prediction.value().peak_memory_bytes[worker]});
  }
  return step;
}

FoundPlan search(const Inputs& inputs, std::int64_t global_batch_size) {
  if (global_batch_size < 1)
    throw Error(fmt::format("global batch size: {} given, expected at least 1", global_batch_size));
  const Read read(inputs);
  plan::SearchOptions options;
  options.global_batch_size = global_batch_size;
  options.runtime.reduction = plan::reduction_of(options.engine);
  const plan::SearchResult found = value_of(plan::search(read.inputs(), options));
  return {plan::to_toml(found.plan), found.step_seconds,
          plan::ideal_seconds(read.inputs(), global_batch_size), found.proof == plan::SearchProof::kBest,
          plan::left_out_texts(found.left_out)};
}

}  // namespace hdt::planner
