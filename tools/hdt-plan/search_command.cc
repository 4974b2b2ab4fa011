// search_command.cc: `hdt-plan search`: finds a plan and writes it as a file that `predict` and
// hdt-train read.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/hdt-plan/commands.h"
#include "tools/hdt-plan/output_file.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/search/equal_split.h"
#include "training/plan/search/search.h"

namespace hdt::tools {
namespace {

// The schedules of --schedule any. The lockstep order is for comparisons with DeepSpeed only.
constexpr plan::ScheduleKind kSearched[] = {plan::ScheduleKind::kOneForwardOneBackward,
                                            plan::ScheduleKind::kZeroBubble};

// The proof in words.
const char* proof_text(plan::SearchProof proof) {
  switch (proof) {
    case plan::SearchProof::kBest:
      return "no plan of the searched space is faster";
    case plan::SearchProof::kEndedEarly:
      return "search ended early: not proven to be the fastest";
    case plan::SearchProof::kNone:
      break;
  }
  return "put together from classes of equal replicas: not proven to be the fastest";
}

// All pairs of kinds of nodes that were left out are listed.
void print_json(const plan::SearchResult& result, double bound_seconds, const char* proof) {
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const plan::LeftOut& left : result.left_out) {
    left_out.push_back({{"placements", left.placements},
                        {"nodes", {left.link.from, left.link.to}},
                        {"kinds", {left.link.from_kind, left.link.to_kind}},
                        {"reason", left.link.text()}});
  }
  const nlohmann::ordered_json json = {{"step_seconds", result.step_seconds},
                                       {"bound_seconds", bound_seconds},
                                       {"plans_played", result.predictions},
                                       {"proof", proof},
                                       {"left_out", left_out},
                                       {"plan", plan::to_toml(result.plan)}};
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

Status search_command(const SearchCommandOptions& options) {
  // A search may take long; whether its result can be written is known before.
  HDT_RETURN_IF_ERROR(check_output("--output", options.output));
  const auto inputs = read_inputs(options.inputs);
  if (!inputs.is_ok()) return inputs.status();
  const plan::PredictionInputs given{inputs.value().cluster, inputs.value().model, inputs.value().profile,
                                     inputs.value().calibration.factors};
  plan::SearchOptions search_options;
  search_options.global_batch_size = options.global_batch_size;
  search_options.most_replicas = options.most_replicas;
  search_options.most_predictions = options.most_predictions;
  for (const plan::ScheduleKind kind : kSearched) {
    if (options.schedule == kAnySchedule || options.schedule == plan::schedule_name(kind))
      search_options.schedules.push_back(kind);
  }
  // The equal split takes the runtime's schedule; the search takes the list.
  search_options.runtime.schedule = search_options.schedules.front();
  search_options.recompute = options.recompute;
  const auto found =
      options.equal ? plan::search_equal_split(given, search_options) : plan::search(given, search_options);
  if (!found.is_ok()) return found.status();
  const plan::SearchResult& result = found.value();
  const double ideal = plan::ideal_seconds(given, options.global_batch_size);
  const char* const proof = options.equal ? "the best of all equal splits" : proof_text(result.proof);
  // A comment in TOML, so that standard output as a whole is a plan.
  std::string summary =
      fmt::format("# step {:.6g} s, {:.2f} % of the bound of {:.6g} s; {} plans played; {}\n",
                  result.step_seconds, 100 * ideal / result.step_seconds, ideal, result.predictions, proof);
  for (const std::string& text : plan::left_out_texts(result.left_out)) summary += "# " + text + "\n";
  const std::string text = summary + plan::to_toml(result.plan);
  if (!options.output.empty()) HDT_RETURN_IF_ERROR(write_output("--output", options.output, text));
  if (options.json) {
    print_json(result, ideal, proof);
  } else {
    fmt::print("{}", options.output.empty() ? text : summary);
  }
  return Status::ok();
}

}  // namespace hdt::tools
