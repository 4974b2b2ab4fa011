// explain_command.cc: `hdt-plan explain`: prints what limits the workers, how the step would change with
// better hardware, and the best plan of another shape. The text and the JSON show the same things.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/hdt-plan/commands.h"
#include "training/plan/describe/group_classes.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/output/explanation.h"
#include "training/plan/output/sensitivity.h"
#include "training/plan/search/search.h"

namespace hdt::tools {
namespace {

// All that there is to print.
struct Explained {
  double ideal_seconds = 0;
  std::vector<plan::WorkerGroup> groups;
  std::vector<std::string> limits;  // of the groups
  std::map<std::string, std::set<plan::ClassUse>> classes;
  std::vector<plan::Change> changes;
  plan::RivalSearch search;
};

// "1-4,7" of 0, 1, 2, 3, 6.
std::string ranges_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    for (end = first + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    parts.push_back(end - first == 1 ? fmt::format("{}", numbers[first] + 1)
                                     : fmt::format("{}-{}", numbers[first] + 1, numbers[end - 1] + 1));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

// The nodes of a group's workers, each once, in the order of replicas.
std::vector<std::string> nodes_of(const plan::Plan& plan, const plan::WorkerGroup& group) {
  std::vector<std::string> nodes;
  for (const int replica : group.replicas) {
    const std::string& node = plan.replicas[replica].stages[group.stage].node;
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

// The part of each device's memory that the plan takes.
double memory_share(const PlayedPlan& played, const plan::WorkerGroup& group) {
  const plan::Cluster& cluster = played.inputs.cluster;
  const std::string& node = played.plan.replicas[group.replicas.front()].stages[group.stage].node;
  return played.prediction.peak_memory_bytes[group.worker] /
         static_cast<double>(cluster.nodes[cluster.index_of(node)].memory_bytes);
}

// One line for each group. Long lists are cut: a replica's number and a node's name are there to find the
// others in the plan.
void print_workers(const PlayedPlan& played, const Explained& explained) {
  constexpr size_t kMostReplicas = 16;
  std::vector<std::array<std::string, 3>> rows = {{"replicas", "stage", "nodes"}};
  for (const plan::WorkerGroup& group : explained.groups) {
    std::string replicas = ranges_text(group.replicas);
    if (replicas.size() > kMostReplicas)
      replicas = fmt::format("{} and {} more", group.replicas.front() + 1, group.replicas.size() - 1);
    const std::vector<std::string> nodes = nodes_of(played.plan, group);
    rows.push_back(
        {replicas, fmt::format("{}", group.stage + 1),
         nodes.size() == 1 ? nodes.front() : fmt::format("{} and {} more", nodes.front(), nodes.size() - 1)});
  }
  std::array<size_t, 3> widths = {};
  for (const auto& row : rows) {
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& [replicas, stage, nodes] = rows[row];
    fmt::print("{:<{}}  {:>{}}  {:<{}}  ", replicas, widths[0], stage, widths[1], nodes, widths[2]);
    if (row == 0) {
      fmt::print("{:<24} {:>8} {:>11}\n", "most time goes to", "compute", "memory used");
      continue;
    }
    const plan::WorkerGroup& group = explained.groups[row - 1];
    fmt::print("{:<24} {:>6.1f} % {:>9.1f} %\n", explained.limits[row - 1],
               100 * played.prediction.workers[group.worker].compute / played.prediction.step_seconds,
               100 * memory_share(played, group));
  }
}

// For each class of the plan its settings, and which kinds of nodes talk over which NICs.
void print_classes(const plan::Plan& plan, const Explained& explained) {
  if (plan.classes.empty()) return;
  fmt::print("\n");
  for (const auto& [name, settings] : plan.classes) {
    fmt::print("class {}  backends {}; nics {}; priority {}; weight {}; algorithm {}\n", name,
               fmt::join(settings.backends, ", "), fmt::join(settings.nics, ", "), settings.priority,
               settings.weight, settings.algorithm);
    const std::set<plan::ClassUse>& uses = explained.classes.at(name);
    for (const plan::ClassUse& use : uses) fmt::print("  {} - {} over {}\n", use.from, use.to, use.nic);
    if (uses.empty()) fmt::print("  inside nodes\n");
  }
}

void print_text(const PlayedPlan& played, const Explained& explained) {
  const plan::Plan& plan = played.plan;
  const plan::Cluster& cluster = played.inputs.cluster;
  const double step = played.prediction.step_seconds;
  fmt::print("step   {:.6g} s\n", step);
  fmt::print(
      "bound  {:.6g} s, if every device of the cluster worked alone and nothing were lost: reached {:.2f} "
      "%\n\n",
      explained.ideal_seconds, 100 * explained.ideal_seconds / step);
  print_workers(played, explained);
  print_classes(plan, explained);
  // A step that takes t instead of s seconds changes the rate of steps by s / t - 1.
  fmt::print("\nwith the same plan, the rate of steps would change by\n");
  for (const plan::Change& change : explained.changes)
    fmt::print("  {:+6.1f} %  {}\n", 100 * (step / change.step_seconds - 1), change.what);
  fmt::print("\nplan       {}\n", plan::plan_text(plan, cluster));
  if (const auto& rival = explained.search.rival) {
    fmt::print("{}  {}: {:.6g} s, {:+.2f} %; {}\n", rival->step_seconds < step ? "faster   " : "runner-up",
               plan::plan_text(rival->plan, cluster), rival->step_seconds,
               100 * (rival->step_seconds / step - 1), rival->reason);
  } else {
    fmt::print("runner-up  none: no plan of another shape was played\n");
  }
  for (const std::string& text : plan::left_out_texts(explained.search.left_out)) fmt::print("{}\n", text);
}

// Replicas and stages are numbered from 0, as in predict's JSON.
void print_json(const PlayedPlan& played, const Explained& explained) {
  using Json = nlohmann::ordered_json;
  const plan::Plan& plan = played.plan;
  const plan::Cluster& cluster = played.inputs.cluster;
  Json json = {{"step_seconds", played.prediction.step_seconds},
               {"bound_seconds", explained.ideal_seconds},
               {"plan", plan::plan_text(plan, cluster)},
               {"workers", Json::array()},
               {"classes", Json::object()},
               {"changes", Json::array()},
               {"rival", nullptr},
               {"left_out", plan::left_out_texts(explained.search.left_out)}};
  for (size_t at = 0; at < explained.groups.size(); ++at) {
    const plan::WorkerGroup& group = explained.groups[at];
    json["workers"].push_back({{"replicas", group.replicas},
                               {"stage", group.stage},
                               {"nodes", nodes_of(plan, group)},
                               {"limit", explained.limits[at]},
                               {"compute_seconds", played.prediction.workers[group.worker].compute},
                               {"memory_share", memory_share(played, group)}});
  }
  for (const auto& [name, uses] : explained.classes) {
    json["classes"][name] = Json::array();
    for (const plan::ClassUse& use : uses)
      json["classes"][name].push_back({{"from", use.from}, {"to", use.to}, {"nic", use.nic}});
  }
  for (const plan::Change& change : explained.changes) {
    Json object = {{"kind", plan::change_kind_name(change.kind)},
                   {"what", change.what},
                   {"step_seconds", change.step_seconds}};
    if (!change.device.empty()) object["device"] = change.device;
    for (const plan::LinkKey& key : change.links)
      object["links"].push_back(
          {{"from", key.from}, {"to", key.to}, {"inside", key.inside}, {"nic", key.nic}});
    json["changes"].push_back(std::move(object));
  }
  if (const auto& rival = explained.search.rival) {
    json["rival"] = {{"plan", plan::plan_text(rival->plan, cluster)},
                     {"step_seconds", rival->step_seconds},
                     {"reason", rival->reason}};
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

Status explain_command(const ExplainOptions& options) {
  const auto read = play_plan(options.inputs, options.plan);
  if (!read.is_ok()) return read.status();
  const PlayedPlan& played = read.value();
  const plan::Plan& plan = played.plan;
  const plan::PredictionInputs given{played.inputs.cluster, played.inputs.model, played.inputs.profile,
                                     played.inputs.calibration.factors};
  // 1. What limits each worker.
  Explained explained;
  explained.ideal_seconds = plan::ideal_seconds(given, plan.global_batch_size());
  explained.groups = plan::worker_groups(given, plan);
  for (const plan::WorkerGroup& group : explained.groups)
    explained.limits.push_back(plan::binding_resource(given, plan, played.prediction, group.worker));
  if (!plan.classes.empty()) {
    auto uses = plan::class_uses(plan, played.inputs.cluster);
    if (!uses.is_ok()) return uses.status();
    explained.classes = uses.take();
  }
  // 2. The same plan on better hardware.
  auto changes = plan::changes(given, plan);
  if (!changes.is_ok()) return changes.status();
  explained.changes = changes.take();
  // 3. The best plan of another shape, by a search.
  auto search = plan::best_rival(given, plan);
  if (!search.is_ok()) return search.status();
  explained.search = search.take();
  if (options.json)
    print_json(played, explained);
  else
    print_text(played, explained);
  return Status::ok();
}

}  // namespace hdt::tools
