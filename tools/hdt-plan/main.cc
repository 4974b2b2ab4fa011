// hdt-plan: predicts training steps of plans on mixed clusters, searches plans, and shows how far off it
// is.
//
// main() describes the command line. Each subcommand's callback stores the work in `run`, which is
// called once after parsing, so that parse errors and errors of the work are reported apart from each
// other.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>

#include "base/run_main.h"
#include "tools/common/flag_checks.h"
#include "tools/hdt-plan/commands.h"

namespace {

constexpr int kExitUsage = 2;

constexpr const char* kExamples =
    "Examples:\n"
    "  hdt-plan profile lab/ -- --num-layers 6 --hidden-size 128\n"
    "  hdt-plan predict plan.toml -p profile.toml -c cluster.toml -m model.toml\n"
    "  hdt-plan search cluster.toml model.toml -p profile.toml --global-batch-size 256\n"
    "  hdt-plan export plan.toml -c cluster.toml -- --data-path data/kjv > train.sh\n"
    "  hdt-plan convert --from megatron-fork run.sh --to toml > plan.toml\n"
    "  hdt-plan validate published/\n"
    "\n"
    "docs/predictor.md describes the files. Exit status: 0 done, 1 no memory, 2 wrong usage or an "
    "input that was refused.";

constexpr const char* kProfileExamples =
    "Examples:\n"
    "  hdt-plan profile lab/ -- --num-layers 6 --hidden-size 128\n"
    "  hdt-plan profile lab/ -- --profile-device fast slow:3 --profile-micro-batch-sizes 1 2 4\n"
    "  hdt-plan profile lab/ --ranks 1\n"
    "Links between nodes: start hdt-train --profile with one rank on each of two, by your launcher.";

constexpr const char* kPredictExamples =
    "Examples:\n"
    "  hdt-plan predict plan.toml -p profile.toml -c cluster.toml -m model.toml\n"
    "  hdt-plan predict plan.toml -p p.toml -c c.toml -m m.toml --trace step.json --svg step.svg";

constexpr const char* kSearchExamples =
    "Examples:\n"
    "  hdt-plan search cluster.toml model.toml -p profile.toml --global-batch-size 256 > plan.toml\n"
    "  hdt-plan search c.toml m.toml -p p.toml --global-batch-size 256 --max-replicas 2 --output plan.toml\n"
    "  hdt-plan search c.toml m.toml -p p.toml --global-batch-size 256 --schedule any --recompute";

constexpr const char* kValidateExamples =
    "Examples:\n"
    "  hdt-plan validate published/\n"
    "  hdt-plan validate trials.toml\n"
    "  hdt-plan validate runs.toml -p profile.toml -c cluster.toml -m model.toml --calibrations .";
constexpr const char* kExportExamples =
    "Examples:\n"
    "  hdt-plan export plan.toml -c cluster.toml -- --data-path data/kjv --train-iters 100 > train.sh\n"
    "  hdt-plan export plan.toml -c cluster.toml --classes > classes.toml\n"
    "  hdt-plan export plan.toml -c cluster.toml --megatron";

constexpr const char* kConvertExamples =
    "Examples:\n"
    "  hdt-plan convert --from megatron-fork run.sh --to toml --cluster cluster.toml --output plan.toml\n"
    "  hdt-plan convert --from toml plan.toml --to flagscale --cluster cluster.toml\n"
    "  hdt-plan convert --from megatron-layout --to megatron-fork --ranks 4 -- \\\n"
    "      --pipeline-model-parallel-layout 'Et*3|tL' --pipeline-model-parallel-size 2 --micro-batch-size 2\n"
    "A file of flags may be a whole script: nothing of it is run, and flags behind -- count after its own.";

constexpr const char* kSimulateExamples =
    "Examples:\n"
    "  hdt-plan simulate cluster.toml reliability.toml --step-seconds 12.5\n"
    "  hdt-plan simulate c.toml reliability.toml --plan plan.toml -p p.toml -m m.toml --checkpoint-interval "
    "1800";

// Prints the message as one line on standard error. All refusals have one exit code.
int fail(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  fmt::print(stderr, "hdt-plan: {}\n", message);
  return kExitUsage;
}

// The flags that all predicting subcommands have.
void add_profile(CLI::App* command, hdt::tools::InputPaths& paths) {
  command->add_option("-p,--profile", paths.profile, "measured times and links")
      ->type_name("FILE")
      ->required();
  command->add_option("--calibration", paths.calibration, "factors and residuals of measured runs")
      ->type_name("FILE");
}

// The plan and the three files that it is predicted from.
void add_plan_inputs(CLI::App* command, hdt::tools::InputPaths& paths, std::string& plan) {
  command->add_option("plan", plan, "the plan")->type_name("PLAN")->required();
  add_profile(command, paths);
  command->add_option("-c,--cluster", paths.cluster, "the machines")->type_name("FILE")->required();
  command->add_option("-m,--model", paths.model, "the model")->type_name("FILE")->required();
}

// A form by its name.
void add_form(CLI::App* command, const char* flag, hdt::plan::Form& form, const char* text) {
  std::vector<std::string> names;
  for (const hdt::plan::FormName& name : hdt::plan::kForms) names.emplace_back(name.name);
  command
      ->add_option_function<std::string>(
          flag,
          [&form](const std::string& given) {
            for (const hdt::plan::FormName& name : hdt::plan::kForms)
              form = given == name.name ? name.form : form;
          },
          text)
      ->check(CLI::IsMember(names))
      ->required();
}

// `hdt-plan convert`; `convert` and `run` must outlive the parsing.
void add_convert(CLI::App& app, hdt::tools::ConvertOptions& convert, std::function<hdt::Status()>& run) {
  CLI::App* command = app.add_subcommand(
      "convert", "a layout in the form of another framework, with what that does otherwise");
  command->footer(kConvertExamples);
  add_form(
      command, "--from", convert.from,
      "form of the input: toml (a plan), megatron-fork (flags of SynerFuse and hdt-train), megatron-layout "
      "(--pipeline-model-parallel-layout, or its string alone), flagscale (process meshes)");
  command->add_option("input", convert.input, "the file; none where all flags are behind --")
      ->type_name("FILE");
  command->add_option("flags", convert.flags, "after --: flags that count after those of the file")
      ->type_name("FLAG");
  add_form(command, "--to", convert.to, "form to write");
  command
      ->add_option(
          "-c,--cluster", convert.cluster,
          "the machines: names the nodes of a plan that flags make, and the kinds of devices of a plan")
      ->type_name("FILE");
  command
      ->add_option("--ranks", convert.ranks, "ranks of the job, where the flags do not say how many replicas")
      ->check(hdt::tools::whole(1, 65'536));
  command->add_option("--output", convert.output, "write here instead of to stdout")
      ->type_name("FILE")
      ->check(hdt::tools::path_name());
  command->callback([&convert, &run] { run = [&convert] { return hdt::tools::convert_command(convert); }; });
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(
      "Predicts what a training step of a plan takes on a mixed cluster, searches the fastest plan, "
      "and shows "
      "how far off the predictions are.");
  app.footer(kExamples);
  hdt::tools::last_one_counts(app);
  app.require_subcommand(1);
  // Set by the callback of the subcommand that was given.
  std::function<hdt::Status()> run;

  // The options of all subcommands live until run() has returned, as its closure refers to them.
  hdt::tools::ProfileCommandOptions profile;
  CLI::App* profile_app = app.add_subcommand(
      "profile",
      "measure this machine: layers by micro-batch size, optimizer, memory, links (runs hdt-train)");
  profile_app->footer(kProfileExamples);
  profile_app->add_option("folder", profile.folder, "for profile.toml and model.toml")
      ->type_name("DIR")
      ->required();
  profile_app->add_option("--ranks", profile.ranks, "on this machine; with two or more, links are measured")
      ->check(hdt::tools::whole(1, 1024))
      ->capture_default_str();
  profile_app
      ->add_option("arguments", profile.arguments, "after --: flags for hdt-train, as the model and devices")
      ->type_name("FLAG");
  profile_app->callback([&] { run = [&] { return hdt::tools::profile_command(profile); }; });

  hdt::tools::PredictOptions predict;
  CLI::App* predict_app = app.add_subcommand("predict", "time, its parts and memory of one step of a plan");
  predict_app->footer(kPredictExamples);
  add_plan_inputs(predict_app, predict.inputs, predict.plan);
  predict_app->add_option("--trace", predict.trace, "write a trace for ui.perfetto.dev")
      ->type_name("FILE")
      ->check(hdt::tools::path_name());
  predict_app
      ->add_option("--svg", predict.svg,
                   "draw the pipeline there (by gnuplot), with the data in FILE.gnuplot")
      ->type_name("FILE")
      ->check(hdt::tools::path_name());
  predict_app->add_flag("--json", predict.json, "print JSON");
  predict_app->callback([&] { run = [&] { return hdt::tools::predict_command(predict); }; });

  hdt::tools::SearchCommandOptions search;
  CLI::App* search_app = app.add_subcommand("search", "the fastest plan, as predicted, that fits memory");
  search_app->footer(kSearchExamples);
  search_app->add_option("cluster", search.inputs.cluster, "the machines")->type_name("CLUSTER")->required();
  search_app->add_option("model", search.inputs.model, "the model")->type_name("MODEL")->required();
  add_profile(search_app, search.inputs);
  search_app->add_option("--global-batch-size", search.global_batch_size, "samples of a step")
      ->check(hdt::tools::whole(1, std::numeric_limits<int>::max()))
      ->required();
  search_app->add_option("--max-replicas", search.most_replicas, "maximum number of copies of the model")
      ->check(hdt::tools::whole(1, 1'000'000))
      ->capture_default_str();
  search_app
      ->add_option("--max-predictions", search.most_predictions,
                   "maximum number of plans to play; then the best so far is taken. With --schedule any, a "
                   "tenth as many interleaved plans are played in addition")
      ->check(hdt::tools::whole(1, 1'000'000'000))
      ->capture_default_str();
  search_app
      ->add_option("--seconds", search.seconds,
                   "end the search after so long, with the best plan so far; without it the result does not "
                   "depend on the machine")
      ->check(hdt::tools::number(1e-3, 1e6));
  search_app
      ->add_option(
          "--engine", search.engine,
          "only plans that it runs: hdt-train (no tensor parallelism), megatron (the fork SynerFuse: one "
          "split and one degree for all replicas, and either stages or micro-batches that differ), any")
      ->check(CLI::IsMember({"hdt-train", "megatron", "any"}))
      ->capture_default_str();
  search_app->add_flag(
      "--equal", search.equal,
      "treat all devices alike: equal replicas, even layers; to see what unequal splits bring");
  search_app
      ->add_option("--schedule", search.schedule,
                   "the pipeline's; any takes the one that is predicted to be fastest. Interleaved plans are "
                   "made from plans of the others, with 2 to 4 chunks of the model on each stage")
      ->check(CLI::IsMember({"1f1b", "eager-1f1b", "zero-bubble", "interleaved", hdt::tools::kAnySchedule}))
      ->capture_default_str();
  auto* const recompute =
      search_app->add_flag("--recompute", search.recompute,
                           "stages that lack memory compute activations again, of as few layers as fit");
  search_app
      ->add_option(
          "--recompute-granularity", search.recompute_granularity,
          "with --recompute, what of these layers: full: all; selective: attention alone, which must "
          "be in the profile; any: on each stage what takes less time, of what the profile has")
      ->check(CLI::IsMember(
          {hdt::plan::kFullGranularity, hdt::plan::kSelectiveGranularity, hdt::tools::kAnyGranularity}))
      ->capture_default_str()
      ->needs(recompute);
  search_app->add_flag("--use-distributed-optimizer", search.shard_optimizer,
                       "tries sharded optimizer states (ZeRO-1) beside whole ones, and takes them where the "
                       "model fits no other way or the step is shorter");
  search_app->add_option("--output", search.output, "write the plan here instead of to stdout")
      ->type_name("FILE")
      ->check(hdt::tools::path_name());
  search_app->add_flag("--json", search.json, "print JSON, with the plan's text in it");
  search_app->callback([&] { run = [&] { return hdt::tools::search_command(search); }; });

  hdt::tools::ExplainOptions explain;
  CLI::App* explain_app = app.add_subcommand("explain", "what binds a plan, and what would make it faster");
  explain_app->footer("Example:\n  hdt-plan explain plan.toml -p profile.toml -c cluster.toml -m model.toml");
  add_plan_inputs(explain_app, explain.inputs, explain.plan);
  explain_app->add_flag("--json", explain.json, "print JSON");
  explain_app->callback([&] { run = [&] { return hdt::tools::explain_command(explain); }; });

  hdt::tools::ExportOptions exported;
  CLI::App* export_app = app.add_subcommand("export", "a plan as the command line that runs it");
  export_app->footer(kExportExamples);
  export_app->add_option("plan", exported.plan, "the plan")->type_name("PLAN")->required();
  export_app->add_option("-c,--cluster", exported.cluster, "the machines")->type_name("FILE")->required();
  export_app->add_flag("--megatron", exported.megatron,
                       "print the flags of mixed-vendor Megatron forks instead of the start of hdt-train");
  export_app
      ->add_flag(
          "--classes", exported.classes,
          "print the [class.NAME] sections for hdtcommd's configuration, and the hdtctl commands that change "
          "running groups, instead")
      ->excludes("--megatron");
  export_app
      ->add_option("arguments", exported.arguments, "after --: flags for hdt-train, as data and iterations")
      ->type_name("FLAG");
  export_app->callback([&] { run = [&] { return hdt::tools::export_command(exported); }; });

  hdt::tools::ConvertOptions convert;
  add_convert(app, convert, run);

  hdt::tools::ValidateOptions validate;
  CLI::App* validate_app =
      app.add_subcommand("validate", "predict measured steps, each calibrated on the others");
  validate_app->footer(kValidateExamples);
  validate_app
      ->add_option(
          "measured", validate.measured,
          "a published folder (profiles.json, links.json, llm_info.json and plans-*/*.json), a file of "
          "trials, or a file of own runs (with -p, -c and -m)")
      ->type_name("PATH")
      ->required();
  validate_app->add_option("-p,--profile", validate.inputs.profile, "profile of the file of own runs")
      ->type_name("FILE");
  validate_app->add_option("-c,--cluster", validate.inputs.cluster, "cluster of the file of own runs")
      ->type_name("FILE");
  validate_app->add_option("-m,--model", validate.inputs.model, "model of the file of own runs")
      ->type_name("FILE");
  validate_app
      ->add_option("--calibrations", validate.calibrations,
                   "write what was learnt from each set to DIR/SET.toml, for --calibration")
      ->type_name("DIR")
      ->check(hdt::tools::path_name());
  validate_app->add_flag("--json", validate.json, "print JSON");
  validate_app->callback([&] { run = [&] { return hdt::tools::validate_command(validate); }; });

  hdt::tools::ImportOptions import;
  CLI::App* import_app = app.add_subcommand(
      "import", "a published folder, or trials, as profile, model, cluster, plans and runs");
  import_app->footer(
      "Writes DIR/SET/profile.toml, model.toml, cluster.toml, plan-ROW.toml and runs.toml for each set.\n\n"
      "Example:\n  hdt-plan import measurements --output lab\n"
      "  hdt-plan validate lab/plans-a/runs.toml -p lab/plans-a/profile.toml -c lab/plans-a/cluster.toml "
      "-m lab/plans-a/model.toml");
  import_app
      ->add_option("published", import.published,
                   "the folder (profiles.json, links.json, llm_info.json and plans-*/*.json), or a file of "
                   "trials")
      ->type_name("PATH")
      ->required();
  import_app->add_option("--output", import.output, "where the sets' folders go; made if it is not there")
      ->type_name("DIR")
      ->required();
  import_app->callback([&] { run = [&] { return hdt::tools::import_command(import); }; });

  hdt::tools::SimulateOptions simulate;
  CLI::App* simulate_app =
      app.add_subcommand("simulate", "steps an hour on machines that fail, and the best checkpoint interval");
  simulate_app->footer(kSimulateExamples);
  simulate_app->add_option("cluster", simulate.inputs.cluster, "the machines")
      ->type_name("CLUSTER")
      ->required();
  simulate_app->add_option("reliability", simulate.reliability, "how often they fail, and what that costs")
      ->type_name("RELIABILITY")
      ->required();
  const CLI::Validator seconds = hdt::tools::number(1e-9, 1e12);
  simulate_app->add_option("--step-seconds", simulate.step_seconds, "what a step takes, if it is known")
      ->check(seconds);
  simulate_app->add_option("--plan", simulate.plan, "the plan whose step is predicted (with -p and -m)")
      ->type_name("FILE");
  simulate_app->add_option("-p,--profile", simulate.inputs.profile, "profile of the plan")->type_name("FILE");
  simulate_app->add_option("-m,--model", simulate.inputs.model, "model of the plan")->type_name("FILE");
  simulate_app->add_option("--calibration", simulate.inputs.calibration, "calibration of the plan")
      ->type_name("FILE");
  simulate_app
      ->add_option("--checkpoint-interval", simulate.checkpoint_interval,
                   "seconds of training between checkpoints (default: the best)")
      ->check(seconds);
  simulate_app->add_flag("--json", simulate.json, "print JSON");
  simulate_app->callback([&] { run = [&] { return hdt::tools::simulate_command(simulate); }; });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(std::string(error.what()) + " (see hdt-plan --help)");
  }
  const hdt::Status status = run();
  if (!status.is_ok()) return fail(status.message());
  // A plan that was not written completely must not look like success.
  if (std::fflush(stdout) != 0) return fail("cannot write to stdout");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return hdt::run_main("hdt-plan", 1, [&] { return parse_and_run(argc, argv); });
}
