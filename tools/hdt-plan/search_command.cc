// search_command.cc: `hdt-plan search`: finds a plan and writes it as a file that `predict` and
// hdt-train read.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/hdt-plan/commands.h"
#include "tools/hdt-plan/output_file.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/search/equal_split.h"
#include "training/plan/search/recomputation.h"
#include "training/plan/search/search.h"

namespace hdt::tools {
namespace {

// The schedules of --schedule any. The lockstep order is for comparisons with DeepSpeed only.
constexpr plan::ScheduleKind kSearched[] = {plan::ScheduleKind::kOneForwardOneBackward,
                                            plan::ScheduleKind::kEager, plan::ScheduleKind::kZeroBubble,
                                            plan::ScheduleKind::kInterleaved};

// The proof in words. It does not speak of interleaved plans.
const char* proof_text(const plan::SearchResult& result) {
  switch (result.proof) {
    case plan::SearchProof::kBest:
      return result.interleaved_plans > 0 ? "no plan with one chunk on each stage is faster"
                                          : "no other plan is faster";
    case plan::SearchProof::kBestOfNeighbours:
      return "no plan is faster in which devices of a kind are neighbours and replicas have one micro-batch "
             "size";
    case plan::SearchProof::kEndedEarly:
      return "search ended early: not proven to be the fastest";
    case plan::SearchProof::kTried:
      return "some plans were tried: not proven to be the fastest";
    case plan::SearchProof::kNone:
      break;
  }
  return "put together from classes of equal replicas: not proven to be the fastest";
}

// What the search did not look at, or only near good plans. Empty: all plans of one chunk a stage were
// searched.
std::string not_searched(const plan::SearchResult& result, const plan::SearchOptions& options) {
  std::string text;
  switch (result.proof) {
    case plan::SearchProof::kBest:
      break;
    case plan::SearchProof::kBestOfNeighbours:
      text =
          "other orders of devices, and replicas with different micro-batch sizes: tried near good plans "
          "only";
      break;
    case plan::SearchProof::kEndedEarly:
    case plan::SearchProof::kTried:
    case plan::SearchProof::kNone:
      text =
          "most orders of devices, layer splits, and mixes of replicas: tried near good plans and the "
          "textbook's "
          "layouts only";
      break;
  }
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (result.not_played > 0)
    add(fmt::format("{} candidate{} with longer estimated steps than those that were played",
                    result.not_played, result.not_played == 1 ? "" : "s"));
  if (options.engine != plan::Engine::kHdtTrain)
    add("stages of one pipeline with different tensor-parallel degrees");
  return text;
}

// All pairs of kinds of nodes that were left out are listed.
void print_json(const plan::SearchResult& result, double bound_seconds, const char* proof,
                const std::string& not_searched) {
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const plan::LeftOut& left : result.left_out) {
    left_out.push_back({{"placements", left.placements},
                        {"nodes", {left.link.from, left.link.to}},
                        {"kinds", {left.link.from_kind, left.link.to_kind}},
                        {"reason", left.link.text()}});
  }
  const nlohmann::ordered_json json = {{"step_seconds", result.step_seconds},
                                       {"bound_seconds", bound_seconds},
                                       {"plans_played", result.predictions + result.interleaved_plans},
                                       {"interleaved_plans_played", result.interleaved_plans},
                                       {"proof", proof},
                                       {"not_searched", not_searched},
                                       {"candidates_not_played", result.not_played},
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
  if (options.equal && options.schedule == plan::schedule_name(plan::ScheduleKind::kInterleaved)) {
    return {Code::kInvalidArgument,
            "--equal with --schedule interleaved: an equal split has one chunk of the model on each stage, "
            "expected another schedule"};
  }
  // The equal split takes the runtime's schedule; the search takes the list.
  search_options.runtime.schedule = search_options.schedules.front();
  const std::string& granularity = options.recompute_granularity;
  if (options.recompute)
    search_options.recompute = {.layers = granularity != plan::kSelectiveGranularity,
                                .attention = granularity != plan::kFullGranularity};
  search_options.shard_optimizer = options.shard_optimizer;
  search_options.most_seconds = options.seconds;
  for (const EngineName& name : kEngines) {
    if (options.engine == name.name) search_options.engine = name.engine;
  }
  search_options.runtime.reduction = plan::reduction_of(search_options.engine);
  const auto found =
      options.equal ? plan::search_equal_split(given, search_options) : plan::search(given, search_options);
  if (!found.is_ok()) return found.status();
  const plan::SearchResult& result = found.value();
  const double ideal = plan::ideal_seconds(given, options.global_batch_size);
  const char* const proof = options.equal ? "the best of all equal splits" : proof_text(result);
  // A comment in TOML, so that standard output as a whole is a plan.
  std::string summary = fmt::format(
      "# step {:.6g} s, {:.2f} % of the bound of {:.6g} s; {} plans played; {}\n", result.step_seconds,
      100 * ideal / result.step_seconds, ideal, result.predictions + result.interleaved_plans, proof);
  if (result.interleaved_plans > 0)
    summary += fmt::format("# {} of the plans played are interleaved: others of that kind may be faster\n",
                           result.interleaved_plans);
  std::string gaps = options.equal ? "" : not_searched(result, search_options);
  const plan::Profile profile = plan::profile_for(search_options.engine, given.profile);
  if (search_options.recompute.attention &&
      !plan::knows_recomputed_attention({given.cluster, given.model, profile, given.calibration}))
    gaps += fmt::format(
        "{}attention computed again: the profile has no selective_more_seconds and "
        "selective_activation_bytes (hdt-train --profile measures them)",
        gaps.empty() ? "" : "; ");
  if (!gaps.empty()) summary += "# not searched: " + gaps + "\n";
  for (const std::string& text : plan::left_out_texts(result.left_out)) summary += "# " + text + "\n";
  const std::string text = summary + plan::to_toml(result.plan);
  if (!options.output.empty()) HDT_RETURN_IF_ERROR(write_output("--output", options.output, text));
  if (options.json) {
    print_json(result, ideal, proof, gaps);
  } else {
    fmt::print("{}", options.output.empty() ? text : summary);
  }
  return Status::ok();
}

}  // namespace hdt::tools
