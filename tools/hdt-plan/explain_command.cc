// explain_command.cc: `hdt-plan explain`: prints what limits each worker, how the step would change with
// better hardware, and the best plan of another shape.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "tools/hdt-plan/commands.h"
#include "training/plan/describe/group_classes.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/output/explanation.h"
#include "training/plan/search/search.h"

namespace hdt::tools {
namespace {

// Prints, for each class of the plan, its settings and which kinds of nodes talk over which NICs.
Status print_classes(const plan::Plan& plan, const plan::Cluster& cluster) {
  if (plan.classes.empty()) return Status::ok();
  const auto uses = plan::class_uses(plan, cluster);
  if (!uses.is_ok()) return uses.status();
  fmt::print("\n");
  for (const auto& [name, settings] : plan.classes) {
    fmt::print("class {}  backends {}; nics {}; priority {}; weight {}; algorithm {}\n", name,
               fmt::join(settings.backends, ", "), fmt::join(settings.nics, ", "), settings.priority,
               settings.weight, settings.algorithm);
    for (const plan::ClassUse& use : uses.value().at(name))
      fmt::print("  {} - {} over {}\n", use.from, use.to, use.nic);
    if (uses.value().at(name).empty()) fmt::print("  inside nodes\n");
  }
  return Status::ok();
}

}  // namespace

Status explain_command(const ExplainOptions& options) {
  // 1. The step as it is, and what limits each worker.
  const auto played = play_plan(options.inputs, options.plan);
  if (!played.is_ok()) return played.status();
  const auto& [inputs, plan, prediction] = played.value();
  const plan::PredictionInputs given{inputs.cluster, inputs.model, inputs.profile,
                                     inputs.calibration.factors};
  const auto changes = plan::changes(given, plan);
  if (!changes.is_ok()) return changes.status();
  const double step = prediction.step_seconds;
  // The ratio of the two says how much of the hardware the plan uses at all.
  const double ideal = plan::ideal_seconds(given, plan.global_batch_size());
  fmt::print("step   {:.6g} s\n", step);
  fmt::print(
      "bound  {:.6g} s, if every device of the cluster worked alone and nothing were lost: reached {:.2f} "
      "%\n\n",
      ideal, 100 * ideal / step);
  fmt::print("{:>7} {:>5} {:<16} {:<24} {:>8} {:>11}\n", "replica", "stage", "node", "most time goes to",
             "compute", "memory used");
  const training::Layout layout = plan.layout();
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    const std::string& name = plan.replicas[position.replica].stages[position.stage].node;
    const plan::Node& node = inputs.cluster.nodes[inputs.cluster.index_of(name)];
    const plan::WorkerTime& time = prediction.workers[worker];
    fmt::print("{:>7} {:>5} {:<16} {:<24} {:>6.1f} % {:>9.1f} %\n", position.replica + 1, position.stage + 1,
               name, plan::binding_resource(given, plan, prediction, worker), 100 * time.compute / step,
               100 * prediction.peak_memory_bytes[worker] / static_cast<double>(node.memory_bytes));
  }
  // 2. The classes, and the same plan on better hardware.
  HDT_RETURN_IF_ERROR(print_classes(plan, inputs.cluster));
  // A step that takes t instead of s seconds changes the rate of steps by s / t - 1.
  fmt::print("\nwith the same plan, the rate of steps would change by\n");
  for (const plan::Change& change : changes.value())
    fmt::print("  {:+6.1f} %  {}\n", 100 * (step / change.step_seconds - 1), change.what);
  // 3. The best plan of another shape, by a search.
  const auto search = plan::best_rival(given, plan);
  if (!search.is_ok()) return search.status();
  fmt::print("\nplan       {}\n", plan::plan_text(plan, inputs.cluster));
  if (const auto& rival = search.value().rival) {
    fmt::print("{}  {}: {:.6g} s, {:+.2f} %; {}\n", rival->step_seconds < step ? "faster   " : "runner-up",
               plan::plan_text(rival->plan, inputs.cluster), rival->step_seconds,
               100 * (rival->step_seconds / step - 1), rival->reason);
  } else {
    fmt::print("runner-up  none: no plan of another shape was played\n");
  }
  for (const std::string& text : plan::left_out_texts(search.value().left_out)) fmt::print("{}\n", text);
  return Status::ok();
}

}  // namespace hdt::tools
