// hdt-plan as its users run it: what it prints, and with which exit status it ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/training/plan/plan_tool.h"
#include "training/data/command.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(HdtPlan, WrongUsageAndRefusedInputsEndWith2) {
  expect_refused(hdt_plan({}), "subcommand is required");
  expect_refused(hdt_plan({"improve"}), "see hdt-plan --help");
  expect_refused(hdt_plan({"validate"}), "measured");
  expect_refused(hdt_plan({"validate", "/nonexistent"}), "/nonexistent/profiles.json: cannot be read");
}

TEST(HdtPlan, ProfileNeedsAFolderAndTheProgramThatMeasures) {
  expect_refused(hdt_plan({"profile"}), "folder");
  expect_refused(hdt_plan({"profile", "lab", "--ranks", "0"}), "--ranks");
  const training::TemporaryFolder alone;
  std::filesystem::copy_file(HDT_PLAN_PROGRAM, alone.file("hdt-plan"));
  const auto output = training::run_command({alone.file("hdt-plan"), "profile", "lab"});
  ASSERT_TRUE(output.is_ok()) << output.status().to_string();
  expect_refused(output.value(), "no hdt-train in");
}

TEST_F(HdtPlanFiles, PredictShowsPartsThatSumToTheStep) {
  const auto text = hdt_plan(on_plan("predict"));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(StartsWith("step        "), HasSubstr("exposed pp"), HasSubstr("memory GiB")));
  const auto output = hdt_plan(on_plan("predict", {"--json"}));
  const auto json = nlohmann::json::parse(output.out);
  const double step = json["step_seconds"];
  ASSERT_EQ(json["workers"].size(), 4u);
  for (const auto& worker : json["workers"]) {
    double sum = 0;
    for (const char* part : {"compute", "exposed_pipeline", "exposed_reduction", "bubble", "optimizer"})
      sum += worker[part].get<double>();
    EXPECT_NEAR(sum, step, 1e-9);
  }
}

TEST_F(HdtPlanFiles, TraceAndPictureHoldTheStep) {
  const auto output =
      hdt_plan(on_plan("predict", {"--json", "--trace", file("t.json"), "--svg", file("p.svg")}));
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const double step = nlohmann::json::parse(output.out)["step_seconds"];
  const auto trace = nlohmann::json::parse(training::read_all(file("t.json")));
  double last = 0;
  int forwards = 0;
  std::map<std::pair<int, int>, double> lane_ends;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double end = event["ts"].get<double>() + event["dur"].get<double>();
    last = std::max(last, end);
    forwards += event["cat"] == "forward";
    // Events of a thread do not overlap: Perfetto would nest them.
    double& lane_end = lane_ends[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>(), lane_end - 1e-3);
    lane_end = end;
  }
  EXPECT_NEAR(last, 1e6 * step, 1);
  EXPECT_EQ(forwards, 2 * 4 + 2 * 2);  // stages times micro-batches of both replicas
  const std::string script = training::read_all(file("p.svg.gnuplot"));
  // A line for each span that takes time on a worker: as many forwards as in the trace.
  std::istringstream lines(script);
  std::string line;
  int drawn = 0;
  while (std::getline(lines, line)) drawn += line.starts_with("forward ");
  EXPECT_EQ(drawn, forwards);
  EXPECT_THAT(script, HasSubstr("'replica 2 stage 2 (d)' 3"));
  if (output.err.find("'gnuplot': No such file") != std::string::npos) GTEST_SKIP() << output.err;
  EXPECT_EQ(output.err, "");
  EXPECT_THAT(training::read_all(file("p.svg")),
              AllOf(HasSubstr("<svg"), HasSubstr(">predicted step of "), HasSubstr(">replica 2 stage 2 (d)<"),
                    HasSubstr(">seconds<"), HasSubstr(">backward<"), HasSubstr(">reduction<")));
}

TEST_F(HdtPlanFiles, APlanThatDoesNotFitIsRefusedAndNothingIsWritten) {
  Cluster small = example_cluster();
  small.nodes[3].memory_bytes = 1 << 20;
  training::write_all(file("cluster.toml"), to_toml(small));
  expect_refused(hdt_plan(on_plan("predict", {"--svg", file("p.svg")})),
                 "plan.toml: does not fit: replica 2 stage 2 lacks ");
  EXPECT_THAT(folder_.names(), testing::Not(testing::Contains(testing::StartsWith("p.svg"))));
  training::write_all(file("model.toml"), to_toml(example_model(5)));
  expect_refused(hdt_plan(on_plan("predict")), "plan.toml: replica 1.stage.layers: sum to 4, expected the 5");
  Profile holed = example_profile();
  holed.compute.erase({"fast", "head", 1, 2});
  training::write_all(file("profile.toml"), to_toml(holed));
  expect_refused(hdt_plan(on_plan("predict")), "profile.toml: compute: layer 'head' is missing");
}

// Each changes one thing of the example, which runs as it is.
TEST_F(HdtPlanFiles, EveryWrongInputIsRefusedWithFileFieldAndReason) {
  struct Wrong {
    std::string name, from, to, message;
  };
  const std::vector<Wrong> all = {
      // Profiles with holes, and times that cannot be.
      {"profile.toml", "device = \"fast\"", "device = \"other\"", "profile.toml: compute: "},
      {"cluster.toml", "device = \"fast\"", "device = \"unknown\"", "device 'unknown'"},
      {"profile.toml", "forward = ", "forward = 0 #", "profile.toml: compute 1.forward: "},
      {"profile.toml", "update = ", "update = -1 #", "profile.toml: compute 1.update: "},
      // Unknown fields.
      {"profile.toml", "[[compute]]", "[[compute]]\nwatts = 1",
       "profile.toml: compute 1.watts: unknown field"},
      {"cluster.toml", "[[node]]", "[[node]]\nrack = 1", "cluster.toml: node 1.rack: unknown field"},
      {"model.toml", "[[layer]]", "[[layer]]\nsize = 1", "model.toml: layer 1.size: unknown field"},
      {"plan.toml", "[[replica]]", "[[replica]]\ntime = 1", "plan.toml: replica 1.time: unknown field"},
      // Plans that contradict the cluster or themselves.
      {"plan.toml", "node = \"a\"", "node = \"z\"", "plan.toml: replica 1.stage 1.node: "},
      {"plan.toml", "micro_batches = ", "micro_batches = 0 #", "plan.toml: replica 1.micro_batches: "},
      {"plan.toml", "tensor_parallel = ", "tensor_parallel = 64 #",
       "plan.toml: replica 1.stage 1.tensor_parallel: "},
  };
  ASSERT_EQ(hdt_plan(on_plan("predict")).exit_code, 0);
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.name + ": " + wrong.to);
    const std::string right = training::read_all(file(wrong.name));
    std::string changed = right;
    const size_t at = changed.find(wrong.from);
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, wrong.from.size(), wrong.to);
    training::write_all(file(wrong.name), changed);
    expect_refused(hdt_plan(on_plan("predict")), wrong.message);
    training::write_all(file(wrong.name), right);
  }
  Cluster small = example_cluster();
  for (Node& node : small.nodes) node.memory_bytes = 1 << 20;
  training::write_all(file("cluster.toml"), to_toml(small));
  expect_refused(hdt_plan({"search", file("cluster.toml"), file("model.toml"), "-p", file("profile.toml"),
                           "--global-batch-size", "8"}),
                 "fits memory in no split: at best ");
}

TEST_F(HdtPlanFiles, SearchPrintsAPlanThatPredictsAsItSays) {
  const auto found = hdt_plan({"search", file("cluster.toml"), file("model.toml"), "-p", file("profile.toml"),
                               "--global-batch-size", "4", "--output", file("plan.toml")});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, StartsWith("# step "));
  const double promised = std::stod(found.out.substr(7));
  const auto output = hdt_plan(on_plan("predict", {"--json"}));
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_NEAR(nlohmann::json::parse(output.out)["step_seconds"], promised, 1e-4 * promised);
  expect_refused(hdt_plan({"search", file("cluster.toml"), file("model.toml"), "-p", file("profile.toml"),
                           "--global-batch-size", "0"}),
                 "--global-batch-size");
}

// hdt-train sums gradients by libhdt, so a plan for it says so, and its step is that of such sums.
TEST_F(HdtPlanFiles, SearchPlaysAndWritesTheReductionsOfTheEngine) {
  Profile profile = example_profile();
  profile.collective.step_overhead = 1e-3;
  training::write_all(file("profile.toml"), to_toml(profile));
  for (const auto& [engine, reduction] :
       {std::pair{"hdt-train", "hdt"}, {"megatron", "ring"}, {"any", "ring"}}) {
    for (const bool equal : {false, true}) {
      std::vector<std::string> arguments = {
          "search",   file("cluster.toml"), file("model.toml"), "-p",   file("profile.toml"),  "--json",
          "--output", file("plan.toml"),    "--engine",         engine, "--global-batch-size", "16"};
      if (equal) arguments.emplace_back("--equal");
      const auto found = hdt_plan(arguments);
      ASSERT_EQ(found.exit_code, 0) << found.err;
      const auto json = nlohmann::json::parse(found.out);
      EXPECT_THAT(json["plan"].get<std::string>(), HasSubstr(fmt::format("reduction = \"{}\"", reduction)));
      const auto predicted = hdt_plan(on_plan("predict", {"--json"}));
      ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
      EXPECT_EQ(nlohmann::json::parse(predicted.out)["step_seconds"], json["step_seconds"]);
    }
  }
}

TEST_F(HdtPlanFiles, SearchSaysWhichPlansItLeavesOut) {
  const auto search = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"search", file("cluster.toml"), file("model.toml"),
                                          "-p",     file("profile.toml"), "--global-batch-size",
                                          "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return hdt_plan(arguments);
  };
  EXPECT_THAT(search({}).out, testing::Not(HasSubstr("left out")));
  EXPECT_EQ(nlohmann::json::parse(search({"--json"}).out)["left_out"], nlohmann::json::array());
  Profile profile = example_profile();
  profile.links.erase({"fast", "slow", false});
  training::write_all(file("profile.toml"), to_toml(profile));
  const auto text = search({});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              testing::ContainsRegex("\n# left out: [0-9]+ placements of stages: no link between nodes "
                                     "'a' and 'b': the profile has none between 'fast' and 'slow'\n"));
  const auto output = search({"--json", "--output", file("plan.toml")});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const auto json = nlohmann::json::parse(output.out);
  ASSERT_EQ(json["left_out"].size(), 1u);
  EXPECT_GT(json["left_out"][0]["placements"], 0);
  EXPECT_EQ(json["left_out"][0]["nodes"], (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(json["left_out"][0]["kinds"], (std::vector<std::string>{"fast", "slow"}));
  EXPECT_THAT(json["left_out"][0]["reason"].get<std::string>(), HasSubstr("'fast' and 'slow'"));
  EXPECT_NEAR(json["step_seconds"].get<double>(), std::stod(text.out.substr(7)), 1e-4);
  // The plan in the JSON is the plan in the file, and the one that the text is.
  EXPECT_THAT(training::read_all(file("plan.toml")), testing::EndsWith(json["plan"].get<std::string>()));
  EXPECT_EQ(training::read_all(file("plan.toml")), text.out);
  // The search for a rival of that plan has left out the same.
  const auto explained = hdt_plan(on_plan("explain"));
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out,
              testing::ContainsRegex("\nleft out: [0-9]+ placements of stages: no link between"));
}

// On more than 512 devices plays take long, and candidates are left to their estimates.
TEST_F(HdtPlanFiles, SearchSaysHowManyCandidatesItDidNotPlay) {
  Cluster large;
  for (int node = 0; node < 66; ++node)
    large.nodes.push_back({fmt::format("n{}", node), node % 2 == 0 ? "fast" : "slow", 8, int64_t{16} << 30});
  training::write_all(file("cluster.toml"), to_toml(large));
  const std::vector<std::string> arguments = {"search",
                                              file("cluster.toml"),
                                              file("model.toml"),
                                              "-p",
                                              file("profile.toml"),
                                              "--global-batch-size",
                                              "2048",
                                              "--json"};
  const auto found = hdt_plan(arguments);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const auto json = nlohmann::json::parse(found.out);
  const int64_t not_played = json["candidates_not_played"];
  EXPECT_GT(not_played, 1);
  EXPECT_THAT(json["not_searched"].get<std::string>(),
              HasSubstr(fmt::format("; {} candidates with longer estimated steps", not_played)));
}

TEST_F(HdtPlanFiles, SearchRecomputesAndChoosesASchedule) {
  Cluster small = example_cluster();
  for (Node& node : small.nodes) node.memory_bytes = int64_t{300} << 20;
  training::write_all(file("cluster.toml"), to_toml(small));
  const auto search = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"search", file("cluster.toml"), file("model.toml"),
                                          "-p",     file("profile.toml"), "--global-batch-size",
                                          "4",      "--output",           file("plan.toml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return hdt_plan(arguments);
  };
  training::write_all(file("model.toml"), to_toml(example_model(16)));
  expect_refused(search({"--max-replicas", "1"}), "fits memory in no split: at best ");
  const auto found = search({"--max-replicas", "1", "--recompute"});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_GT(read_plan(file("plan.toml")).value().replicas[0].stages[0].recomputed_layers, 0);
  training::write_all(file("model.toml"), to_toml(example_model()));
  training::write_all(file("cluster.toml"), to_toml(example_cluster()));
  const auto whole = search({"--schedule", "1f1b"});
  const auto best = search({"--schedule", "any"});
  ASSERT_EQ(whole.exit_code + best.exit_code, 0) << whole.err << best.err;
  EXPECT_LE(std::stod(best.out.substr(7)), std::stod(whole.out.substr(7)));
  expect_refused(search({"--schedule", "gpipe"}), "--schedule");
}

// Two equal devices, and a link on which a message takes nearly as long as half of the model. Eager 1F1B
// hides the messages, as long as its activations fit.
TEST_F(HdtPlanFiles, SearchChoosesEagerWhereLinksAreSlowAndMemoryAllows) {
  const auto chosen = [&](int64_t memory_mib) {
    Profile profile = example_profile();
    const double rate = static_cast<double>(example_model().layers[1].output_bytes) / .08;
    for (auto& [key, link] : profile.links) link.bandwidth = {{1, rate}};
    training::write_all(file("profile.toml"), to_toml(profile));
    const int64_t memory = memory_mib << 20;
    training::write_all(file("cluster.toml"),
                        to_toml(Cluster{{{"a", "fast", 1, memory}, {"c", "fast", 1, memory}}}));
    const auto found = hdt_plan({"search", file("cluster.toml"), file("model.toml"), "-p",
                                 file("profile.toml"), "--global-batch-size", "32", "--max-replicas", "1",
                                 "--schedule", "any", "--output", file("plan.toml")});
    EXPECT_EQ(found.exit_code, 0) << found.err;
    return read_plan(file("plan.toml")).value().runtime.schedule;
  };
  EXPECT_EQ(chosen(2000), ScheduleKind::kEager);
  EXPECT_NE(chosen(600), ScheduleKind::kEager);
}

TEST_F(HdtPlanFiles, SearchTriesInterleavedPlansAndTheirFileIsRead) {
  const auto search = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "search",   file("cluster.toml"), file("model.toml"),    "-p", file("profile.toml"),
        "--output", file("plan.toml"),    "--global-batch-size", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return hdt_plan(arguments);
  };
  const auto found = search({"--schedule", "interleaved", "--json"});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const auto json = nlohmann::json::parse(found.out);
  EXPECT_GT(json["interleaved_plans_played"], 0);
  EXPECT_EQ(json["proof"], "some plans were tried: not proven to be the fastest");
  EXPECT_THAT(json["plan"].get<std::string>(), HasSubstr("layers = ["));
  const auto output = hdt_plan(on_plan("predict", {"--json"}));
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(nlohmann::json::parse(output.out)["step_seconds"], json["step_seconds"]);
  const auto explained = hdt_plan(on_plan("explain"));
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, testing::ContainsRegex("\n[^\n]*\\([0-9]\\+[0-9]"));
  const auto any = search({"--schedule", "any"});
  ASSERT_EQ(any.exit_code, 0) << any.err;
  EXPECT_LE(std::stod(any.out.substr(7)), 1.0001 * json["step_seconds"].get<double>());
  EXPECT_THAT(search({"--schedule", "interleaved"}).out,
              testing::ContainsRegex("\n# [0-9]+ of the plans played are interleaved"));
  expect_refused(search({"--equal", "--schedule", "interleaved"}), "--equal with --schedule interleaved");
}

TEST_F(HdtPlanFiles, ExplainNamesWhatWouldHelp) {
  const auto output = hdt_plan(on_plan("explain"));
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("bound  "), HasSubstr("\nplan       1 x (3 fast, 1 slow) of 4 x 1"),
                                HasSubstr("\nfaster     "), HasSubstr("slow a tenth faster"),
                                HasSubstr("link fast - slow twice as fast")));
  const auto as_json = hdt_plan(on_plan("explain", {"--json"}));
  ASSERT_EQ(as_json.exit_code, 0) << as_json.err;
  const auto json = nlohmann::json::parse(as_json.out);
  const auto predicted = nlohmann::json::parse(hdt_plan(on_plan("predict", {"--json"})).out);
  EXPECT_EQ(json["step_seconds"], predicted["step_seconds"]);
  size_t workers = 0;
  for (const auto& group : json["workers"]) workers += group["replicas"].size();
  EXPECT_EQ(workers, predicted["workers"].size());
  EXPECT_LT(json["rival"]["step_seconds"], json["step_seconds"]);
  EXPECT_GE(json["changes"].size(), 6U);
  for (const auto& change : json["changes"]) EXPECT_LE(change["step_seconds"], json["step_seconds"]);
}

// From NIC kinds of a cluster to what its daemons read.
TEST_F(HdtPlanFiles, ClassesGoFromSearchToExplainAndExport) {
  const std::vector<std::string> export_classes = {"export", file("plan.toml"), "-c", file("cluster.toml"),
                                                   "--classes"};
  expect_refused(hdt_plan(export_classes), "plan.toml: class: none given; search gives them");
  Cluster cluster = example_cluster();
  cluster.nics = {{"roce", {"rdma", "tcp"}, {"mlx5_*"}}, {"ethernet", {"tcp"}, {"eth0"}}};
  for (Node& node : cluster.nodes) {
    node.devices = 1;
    node.memory_bytes = int64_t{300} << 20;
    node.nics = node.device == "fast" ? std::vector<std::string>{"roce", "ethernet"}
                                      : std::vector<std::string>{"ethernet"};
  }
  training::write_all(file("cluster.toml"), to_toml(cluster));
  training::write_all(file("model.toml"), to_toml(example_model(2)));
  const auto found = hdt_plan({"search", file("cluster.toml"), file("model.toml"), "-p", file("profile.toml"),
                               "--global-batch-size", "4", "--output", file("plan.toml")});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const Plan plan = read_plan(file("plan.toml")).value();
  ASSERT_FALSE(plan.classes.empty());
  const auto explained = hdt_plan(on_plan("explain"));
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  const auto exported = hdt_plan(export_classes);
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  for (const auto& [name, settings] : plan.classes) {
    EXPECT_THAT(explained.out, HasSubstr("\nclass " + name + "  backends " + settings.backends.front()));
    EXPECT_THAT(exported.out,
                HasSubstr("[class." + name + "]\nbackends = [\"" + settings.backends.front() + "\""));
    EXPECT_THAT(exported.out, HasSubstr("# while jobs run: hdtctl class set " + name + " backends="));
  }
  expect_refused(
      hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml"), "--classes", "--", "--lr"}),
      "'--lr': --classes takes no arguments for hdt-train");
  expect_refused(
      hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml"), "--classes", "--megatron"}),
      "--megatron");
  std::string wrong = training::read_all(file("plan.toml"));
  wrong.replace(wrong.find("nics = ["), 8, "nics = [\"slingshot\", ");
  training::write_all(file("plan.toml"), wrong);
  expect_refused(hdt_plan(export_classes),
                 "'slingshot' given, but no node of the cluster has that kind of NIC");
  expect_refused(hdt_plan(on_plan("predict")),
                 "'slingshot' given, but no node of the cluster has that kind of NIC");
}

TEST_F(HdtPlanFiles, ExportPrintsTheCommandThatRunsThePlan) {
  const auto output =
      hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml"), "--", "--text", "book"});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(StartsWith("mpirun --bind-to none \\\n  -np 1 --host a:1 hdt-train --plan "),
                                HasSubstr(" --text book : \\\n  -np 1 --host b:1 ")));
  const auto megatron = hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml"), "--megatron"});
  ASSERT_EQ(megatron.exit_code, 0);
  EXPECT_THAT(megatron.out, HasSubstr("--hetero-pipeline-stages 1 3 1 1 --micro-batch-size-per-dp 1 1 1 1 "
                                      "--num-micro-batches-per-dp 1 4 1 2 "));
  EXPECT_THAT(megatron.err, StartsWith("hdt-plan: warning: replica 2 is split into 2 + 2 layers"));
  EXPECT_THAT(megatron.err, HasSubstr("SynerFuse refuses --hetero-pipeline-stages beside"));
  expect_refused(
      hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml"), "--megatron", "--", "--lr"}),
      "--megatron prints flags only");
  Plan plan = example_plan();
  plan.replicas[0].stages[0].tensor_parallel = 2;
  training::write_all(file("plan.toml"), to_toml(plan));
  expect_refused(hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml")}),
                 "plan.toml: replica 1.stage 1.tensor_parallel: 2 given");
  plan.replicas[1].stages[0].node = "a";
  training::write_all(file("plan.toml"), to_toml(plan));
  expect_refused(hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml")}),
                 "replica 2.stage 1.node: node 'a' has 2 devices; the plan needs 3");
  plan.replicas[0].stages[0].layers = 1;
  training::write_all(file("plan.toml"), to_toml(plan));
  expect_refused(hdt_plan({"export", file("plan.toml"), "-c", file("cluster.toml")}),
                 "plan.toml: replica 2.stage.layers: sum to 4, those of replica 1 to 2");
}

TEST_F(HdtPlanFiles, SimulatesTenThousandDevicesThatFail) {
  training::write_all(file("large.toml"),
                      "[[node]]\nname='f'\ndevice='fast'\ndevices=8\nmemory_bytes=1\ncount=750\n"
                      "[[node]]\nname='s'\ndevice='slow'\ndevices=8\nmemory_bytes=1\ncount=500\n");
  const std::string good =
      "checkpoint_seconds = 60\nrestart_seconds = 600\nnode_mtbf_hours = 100000\n"
      "[[device]]\nkind = 'fast'\nmtbf_hours = 50000\n[[device]]\nkind = 'slow'\nmtbf_hours = 20000\n";
  training::write_all(file("r.toml"), good);
  const auto output =
      hdt_plan({"simulate", file("large.toml"), file("r.toml"), "--step-seconds", "10", "--json"});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const auto json = nlohmann::json::parse(output.out);
  EXPECT_EQ(json["devices"], 10000);
  EXPECT_NEAR(json["failures_per_hour"], 6000. / 50000 + 4000. / 20000 + 1250. / 100000, 1e-9);
  const double best = json["best"]["goodput"];
  // Young's interval is close to the best one, and no better.
  const double young = std::sqrt(2 * 60 * 3600 / json["failures_per_hour"].get<double>());
  EXPECT_NEAR(json["best"]["interval_seconds"], young, .05 * young);
  const auto given = hdt_plan({"simulate", file("large.toml"), file("r.toml"), "--step-seconds", "10",
                               "--checkpoint-interval", std::to_string(young), "--json"});
  EXPECT_LE(nlohmann::json::parse(given.out)["given"]["goodput"], best);
  EXPECT_NEAR(json["best"]["steps_per_hour"], 360 * best, 1e-6);
  EXPECT_THAT(hdt_plan({"simulate", file("large.toml"), file("r.toml"), "--step-seconds", "10"}).out,
              HasSubstr("failures         one every 3.00"));

  // A plan, with spares.
  training::write_all(file("r.toml"), good);
  const auto planned =
      hdt_plan({"simulate", file("cluster.toml"), file("r.toml"), "--plan", file("plan.toml"), "-p",
                file("profile.toml"), "-m", file("model.toml"), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(nlohmann::json::parse(planned.out)["step_seconds"],
            nlohmann::json::parse(hdt_plan(on_plan("predict", {"--json"})).out)["step_seconds"]);
  expect_refused(hdt_plan({"simulate", file("cluster.toml"), file("r.toml")}), "--step-seconds or --plan");
  expect_refused(hdt_plan({"simulate", file("cluster.toml"), file("r.toml"), "--plan", file("plan.toml")}),
                 "--profile: is missing");
  training::write_all(file("r.toml"), "checkpoint_seconds = -1\nrestart_seconds = 600\n");
  expect_refused(hdt_plan({"simulate", file("cluster.toml"), file("r.toml"), "--step-seconds", "1"}),
                 "r.toml: checkpoint_seconds: -1 given");
  training::write_all(file("r.toml"), good + "[[device]]\nkind = 'odd'\nmtbf_hours = 1\n");
  expect_refused(hdt_plan({"simulate", file("cluster.toml"), file("r.toml"), "--step-seconds", "1"}),
                 "r.toml: device.kind: the cluster has no 'odd'");
}

TEST(HdtPlan, HelpHasExamples) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"--help"},
                                                                     {"predict", "--help"},
                                                                     {"search", "--help"},
                                                                     {"explain", "-h"},
                                                                     {"simulate", "--help"},
                                                                     {"export", "-h"},
                                                                     {"validate", "--help"}}) {
    const auto help = hdt_plan(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("Example"), HasSubstr("  hdt-plan ")));
  }
}

}  // namespace
}  // namespace hdt::plan
