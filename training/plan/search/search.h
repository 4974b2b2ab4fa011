// search.h: finds the plan with the shortest predicted step.
//
// Clusters of up to kMostDevicesOfAllShapes devices: branch and bound over all shapes (search_space.h),
// all ways to give out micro-batches, and all layer splits. A plan is cut off by a lower bound that
// holds for every schedule, so it cannot be better. The bound: a stage needs its forward and its
// backward for each micro-batch. Before its first forward, the first micro-batch passes all earlier
// stages and links; after its last backward, the last gradient passes them back. The first plan of a
// shape, which cuts off later ones, comes from dynamic programming (the split with the shortest longest
// stage) and from giving each micro-batch to the replica that ends first with it. These counts are the
// best for the bound, by exchange: moving a micro-batch away from the longest replica of any other
// counts never makes the longest longer.
//
// Larger clusters: class_search.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/recompute_fit.h"
#include "training/plan/predict/stage_cost.h"
#include "training/plan/search/engine_limits.h"

namespace hdt::plan {

// With more devices there are too many shapes to look at each.
constexpr int kMostDevicesOfAllShapes = 12;
// Up to so many, replicas may have other micro-batch sizes, and workers come in every order on every node.
constexpr int kMostDevicesOfAllOrders = 6;
// Up to so many, all layouts of the textbook are played whose bound is below the best step. On larger
// clusters a candidate is not played if its estimate is as long as the best step: plays take long there.
constexpr int kMostDevicesOfAllLayouts = 512;

// The question, and the limits of the search.
struct SearchOptions {
  // Samples of one step, at least 1.
  int64_t global_batch_size = 0;
  // The maximum number of replicas of a plan.
  int most_replicas = 100'000;
  // The runtime of all plans, except for the schedule if `schedules` names some.
  Runtime runtime;
  // The schedules to choose from. Empty: that of `runtime` alone. Interleaved plans are made from those of
  // the others, or, where it is the only one, from plans for 1F1B (interleaved_search.h).
  std::vector<ScheduleKind> schedules;
  // What stages that lack memory may recompute (recomputation.h). Applies only with schedules whose backward
  // is in one part.
  RecomputeChoice recompute = {};
  // Plans with sharded optimizer states (Runtime::use_distributed_optimizer) are tried beside those of
  // `runtime`. They need less memory and update faster; their communication takes longer, but less of it may
  // be waited for.
  bool shard_optimizer = false;
  // The budget of the exhaustive search. It ends after so many played steps, or after a thousand times
  // as many looks at partial plans, with the best plan so far. Beside other schedules, interleaved plans have
  // a budget of their own, a tenth of it.
  int64_t most_predictions = 100'000;
  // The search ends after so many seconds with the best plan so far, but not without one. No value: only the
  // budget in plays counts, and the result does not depend on the machine.
  std::optional<double> most_seconds;
  // Plans that this engine does not run are no plans.
  Engine engine = Engine::kHdtTrain;
};

// The knowledge about plans of one chunk a stage that were not played.
enum class SearchProof {
  // All plans were searched that have one chunk a stage and one tensor-parallel degree; none has a shorter
  // step.
  kBest,
  // The neighbours' shapes (search_space.h) were searched; none of their plans has a shorter step. Others
  // were tried only.
  kBestOfNeighbours,
  // The search was ended by most_predictions.
  kEndedEarly,
  // Only interleaved plans were asked for; some were tried (interleaved_search.h).
  kTried,
  // A large cluster: the plan was put together from classes of equal replicas (class_search.h).
  kNone,
};

// Placements of stages on nodes that were not played, because two of their nodes have no link.
struct LeftOut {
  // One of these pairs of nodes; all pairs of the same kinds of nodes are counted together.
  MissingLink link;
  // How many placements, counted once for each schedule that was searched.
  int64_t placements = 0;
};
// "left out: 12 placements of stages: no link between nodes 'a' and 'b': ...", a text for each pair of kinds
// of nodes; behind eight of them only how many others there are.
std::vector<std::string> left_out_texts(const std::vector<LeftOut>& left_out);

// The plan that was found, with its classes (group_classes.h) if the cluster names NICs.
struct SearchResult {
  Plan plan;
  double step_seconds = 0;
  // The best played plan of another shape (other device kinds or other sizes of stages), if there is
  // one.
  std::optional<Plan> runner_up;
  double runner_up_seconds = 0;
  SearchProof proof = SearchProof::kNone;
  // The number of steps played, without those of interleaved plans.
  int64_t predictions = 0;
  // The number of interleaved plans that were played; no proof speaks of them.
  int64_t interleaved_plans = 0;
  // Candidates that may have been faster and were not played, as their estimated steps were too long.
  int64_t not_played = 0;
  // Placements that were not played. A machine that stays idle may only lack a link in the profile.
  std::vector<LeftOut> left_out;
};

// Seconds of a step on all devices if nothing were lost: the global batch, divided by the sum of the
// rates that each worker would reach alone with the whole model. Each node has the degree and
// micro-batch size that are best for it. Infinite if no node's device kind is profiled.
double ideal_seconds(const PredictionInputs& inputs, int64_t global_batch_size);

// kConfig with the reason if there is no plan, or check_recompute_choice() (recomputation.h) refuses the
// options. If nothing fits memory, the message says how much is missing at least, and on which device kind.
// What was left out is said as well. Runs on the caller's thread; several searches may run at once.
Result<SearchResult> search(const PredictionInputs& inputs, const SearchOptions& options);

}  // namespace hdt::plan
