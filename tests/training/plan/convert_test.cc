// convert_test.cc: layouts from one form to another: that nothing is lost on the way, that what another
// framework does otherwise is warned of, and that foreign text is refused with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tests/training/plan/examples.h"
#include "training/plan/convert/forms.h"

namespace hdt::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Warned<Strategy> read(Form form, const std::string& text, const FormContext& context = {}) {
  Result<Warned<Strategy>> strategy = read_flag_form(form, text, {}, context);
  EXPECT_TRUE(strategy.is_ok()) << text << ": " << strategy.status().message();
  if (strategy.is_ok()) return strategy.take();
  return {{training::Layout(1, {{{1}}}, training::RankOrder::kTpPpDp), {{{"", ""}}}}};
}

std::string error_of(Form form, const std::string& text, const FormContext& context = {}) {
  const Result<Warned<Strategy>> strategy = read_flag_form(form, text, {}, context);
  EXPECT_FALSE(strategy.is_ok()) << text;
  return strategy.status().message();
}

Warned<std::string> write(Form form, const Strategy& strategy) {
  Result<Warned<std::string>> written = write_form(form, strategy);
  EXPECT_TRUE(written.is_ok()) << written.status().message();
  return written.is_ok() ? written.take() : Warned<std::string>();
}

// Every form says the split and the micro-batches of each replica, and where kinds of devices change.
std::string summary(const Strategy& strategy) {
  std::string text;
  for (int r = 0; r < strategy.layout.num_replicas(); ++r) {
    const training::Replica& replica = strategy.layout.replica(r);
    text += split_text(replica) + " of " + std::to_string(replica.micro_batch_size) + " x " +
            std::to_string(replica.num_micro_batches) + ", recompute";
    for (int s = 0; s < replica.stages(); ++s)
      text += " " + std::to_string(strategy.worker({r, s}).recomputed_layers);
    text += "; ";
  }
  return text;
}

constexpr const char* kTwoKinds =
    "--hetero-pipeline-stages 1 6 2 1 1 --micro-batch-size 2 --global-batch-size 16";

TEST(Convert, FlagsOfAForkMakeAPlan) {
  const Warned<Strategy> two = read(Form::kMegatronFork, kTwoKinds, {.ranks = 6});
  EXPECT_EQ(summary(two.value), "6 + 1 + 1 of 2 x 4, recompute 0 0 0; 6 + 1 + 1 of 2 x 4, recompute 0 0 0; ");
  EXPECT_THAT(two.warnings, IsEmpty());
  const Result<Plan> plan = plan_of_strategy(two.value);
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan.value().replicas[1].stages[0].node, "kind-1");
  EXPECT_EQ(plan.value().replicas[1].stages[2].node, "kind-2");
  // More than two kinds, and more than one replica of a kind.
  const Warned<Strategy> three =
      read(Form::kMegatronFork,
           "--num-layers 4 --micro-batch-size-per-dp 2 4 1 2 3 1 --num-micro-batches-per-dp 2 3 1 2 3 1 "
           "--use-tp-pp-dp-mapping");
  EXPECT_EQ(three.value.layout.num_replicas(), 6);
  EXPECT_EQ(three.value.worker({5, 0}).kind, "kind-3");
  EXPECT_EQ(three.value.layout.global_batch_size(), 31);
}

TEST(Convert, RanksArePutOnTheDevicesOfTheCluster) {
  const Cluster cluster = example_cluster();  // 2 fast a, 2 slow b, 2 fast c, 2 slow d
  const FormContext context{{}, &cluster};
  // Stage by stage: stage 0 of all four replicas is on a and b.
  const Warned<Strategy> by_stage =
      read(Form::kMegatronFork, "--hetero-pipeline-stages 1 3 1 1 --micro-batch-size 1", context);
  EXPECT_EQ(by_stage.value.layout.num_replicas(), 4);
  EXPECT_EQ(by_stage.value.worker({0, 0}).node, "a");
  EXPECT_EQ(by_stage.value.worker({2, 0}).node, "b");
  EXPECT_EQ(by_stage.value.worker({0, 1}).node, "c");
  EXPECT_EQ(by_stage.value.worker({3, 1}).kind, "slow");
  const Warned<Strategy> by_replica =
      read(Form::kMegatronFork,
           "--hetero-pipeline-stages 1 3 2 1 1 --micro-batch-size 1 --use-tp-pp-dp-mapping", context);
  EXPECT_EQ(by_replica.value.worker({0, 1}).node, "a");
  EXPECT_EQ(by_replica.value.worker({0, 2}).node, "b");
  EXPECT_THAT(by_replica.warnings, ElementsAre("2 of the 8 devices of the cluster have no stage"));
  // FlagScale takes the devices by the order of their types.
  const Warned<Strategy> meshes =
      read(Form::kFlagScale,
           "--hetero-process-meshes 1 1 1 4 1 1 1 1 4 1 --hetero-device-types slow fast --num-layers 4 "
           "--micro-batch-size 1",
           context);
  EXPECT_EQ(meshes.value.worker({1, 0}).node, "b");
  EXPECT_EQ(meshes.value.worker({2, 0}).node, "d");
  EXPECT_EQ(meshes.value.worker({3, 1}).node, "c");
  const Warned<Strategy> inside =
      read(Form::kFlagScale,
           "--hetero-process-meshes 1 1 1 2 2 --hetero-device-types slow --num-layers 4 --micro-batch-size 1 "
           "--use-tp-pp-dp-mapping",
           context);
  EXPECT_EQ(inside.value.worker({0, 1}).node, "b");
  EXPECT_EQ(inside.value.worker({1, 0}).node, "d");
  EXPECT_THAT(error_of(Form::kFlagScale,
                       "--hetero-process-meshes 1 1 1 5 1 --hetero-device-types slow --num-layers 4 "
                       "--micro-batch-size 1",
                       context),
              HasSubstr("5 ranks, but the cluster has fewer devices of the kinds slow"));
}

TEST(Convert, WhatSynerFuseDoesOtherwiseIsWarnedOf) {
  const auto warnings = [](const std::string& flags, std::optional<int> ranks = {}) {
    return read(Form::kMegatronFork, flags, {.ranks = ranks}).warnings;
  };
  // One replica in each group, and numbers of each: right but for the names that it refuses.
  EXPECT_THAT(warnings("--num-layers 2 --micro-batch-size-per-dp 1 6 1 2 --num-micro-batches-per-dp 1 4 1 4 "
                       "--use-tp-pp-dp-mapping"),
              IsEmpty());
  EXPECT_THAT(warnings("--num-layers 2 --micro-batch-size-per-dp 1 6 1 2"),
              ElementsAre(HasSubstr("without --use-tp-pp-dp-mapping"),
                          HasSubstr("averages the means of the replicas")));
  EXPECT_THAT(warnings("--num-layers 2 --micro-batch-size 1 --num-micro-batches-per-dp 1 4 1 4"),
              ElementsAre(HasSubstr("only beside --micro-batch-size-per-dp")));
  EXPECT_THAT(warnings("--num-layers 2 --micro-batch-size-per-dp 2 2 --num-micro-batches-per-dp 1 4 1 2 "
                       "--use-tp-pp-dp-mapping"),
              ElementsAre(HasSubstr("different groups of replicas")));
  // Groups of 2 replicas with 2 x 4 samples and of 1 with 1 x 2: the sum over groups is 2 x 4 + 1 x 4, as the
  // second replica is of the first group.
  EXPECT_THAT(warnings("--num-layers 2 --micro-batch-size-per-dp 2 2 1 1 --num-micro-batches-per-dp 2 4 1 2 "
                       "--use-tp-pp-dp-mapping"),
              ElementsAre(HasSubstr("replicas 1 and 2 share 3 of 4 micro-batches"),
                          AllOf(HasSubstr("divides gradients by 12, "), HasSubstr("the 18 samples of a step"),
                                HasSubstr("1.5 times as large"))));
  EXPECT_THAT(
      warnings("--num-layers 2 --micro-batch-size-per-dp 1 1 1 1 1 1 --num-micro-batches-per-dp 1 1 1 2 1 3 "
               "--use-tp-pp-dp-mapping"),
      ElementsAre(HasSubstr("refuses 3 different numbers of micro-batches")));
  EXPECT_THAT(warnings("--hetero-pipeline-stages 1 2 --hetero-pipeline-stages 2 1 1 --micro-batch-size 1"),
              ElementsAre(HasSubstr("the forks take the last one for all")));
  EXPECT_THAT(warnings("--hetero-pipeline-stages 2 1 1 --micro-batch-size-per-dp 1 1 --use-tp-pp-dp-mapping"),
              ElementsAre(HasSubstr("refuses --hetero-pipeline-stages beside --micro-batch-size-per-dp")));
  EXPECT_THAT(warnings("--hetero-pipeline-stages 2 1 1 1 1 --num-virtual-stages-per-pipeline-rank 2 "
                       "--micro-batch-size 1",
                       2),
              ElementsAre(HasSubstr("several chunks")));
}

TEST(Convert, AScriptIsReadAsAShellReadsIt) {
  const std::string script =
      "#!/bin/bash\n"
      "HETERO_ARGS=(\n"
      "  # --hetero-pipeline-stages 1 1 1 7\n"
      "  --hetero-pipeline-stages \\\n  1 2 1 '6'\n"
      "  --pipeline-model-parallel-size \"2\" )\n"
      "MBS=${MBS:-(3}\n"
      "torchrun a.py ${HETERO_ARGS[@]} --micro-batch-size=2 -x 7 --lr $LR --global-batch-size 8 > out 2>&1\n"
      "9\n";
  const Warned<Strategy> read_script = read(Form::kMegatronFork, script, {.ranks = 4});
  EXPECT_EQ(summary(read_script.value), "2 + 6 of 2 x 2, recompute 0 0; 2 + 6 of 2 x 2, recompute 0 0; ");
  EXPECT_THAT(read_script.warnings, ElementsAre("left out, as they say nothing of the layout: --lr"));
  EXPECT_EQ(
      error_of(Form::kMegatronFork, "--micro-batch-size ${MBS} --num-layers 1"),
      "--micro-batch-size: '${MBS}' is a variable of the script: give the flag with its value behind --");
  EXPECT_EQ(error_of(Form::kMegatronFork, "--num-layers 1\n'--micro-batch-size 2\n"),
            "line 2: a ' is open at the end");
  EXPECT_EQ(error_of(Form::kMegatronFork, "--num-layers 1 2"), "--num-layers: 2 values, expected one");
  EXPECT_EQ(error_of(Form::kMegatronFork, "--num-layers x"), "--num-layers: 'x', expected a whole number");
  EXPECT_EQ(error_of(Form::kMegatronFork, "--num-layers 99999999999"),
            "--num-layers: '99999999999', expected a whole number");
  EXPECT_EQ(error_of(Form::kMegatronFork, "--hetero-pipeline-stages"),
            "--hetero-pipeline-stages: no values, expected numbers");
  EXPECT_THAT(error_of(Form::kMegatronFork, std::string((1 << 20) + 1, ' ')),
              HasSubstr("expected at most 1048576"));
  const std::vector<std::string> words = {"2", "--lr"};
  EXPECT_EQ(read_flag_form(Form::kMegatronFork, "", words, {}).status().message(), "'2', expected a flag");
}

TEST(Convert, WhatHdtHasNotIsRefusedByName) {
  const std::string job = "--num-layers 4 --micro-batch-size 1 ";
  EXPECT_EQ(error_of(Form::kMegatronFork, job + "--tensor-model-parallel-size 2"),
            "--tensor-model-parallel-size: 2 given, expected 1: HDT has no tensor parallelism yet");
  EXPECT_THAT(error_of(Form::kMegatronFork, job + "--context-parallel-size 4"),
              HasSubstr("no context parallelism"));
  EXPECT_THAT(error_of(Form::kMegatronFork, job + "--expert-model-parallel-size 4"),
              HasSubstr("no expert parallelism"));
  EXPECT_THAT(error_of(Form::kMegatronFork, job + "--decoder-first-pipeline-num-layers 2"),
              HasSubstr("name the split by --pipeline-model-parallel-layout"));
  EXPECT_THAT(
      error_of(Form::kMegatronLayout, "--pipeline-model-parallel-layout 'Et|tm|L' --micro-batch-size 1"),
      HasSubstr("character 5: m, a layer of multi-token prediction (MTP)"));
  EXPECT_THAT(error_of(Form::kMegatronLayout, job + "--hetero-pipeline-stages 1 4"),
              HasSubstr("expected --from megatron-fork"));
  EXPECT_THAT(error_of(Form::kMegatronFork, job + "--pipeline-model-parallel-layout EtL"),
              HasSubstr("expected --from megatron-layout"));
  const std::string meshes =
      "--hetero-device-types A B --num-layers 4 --micro-batch-size 1 --hetero-process-meshes ";
  EXPECT_EQ(error_of(Form::kFlagScale, meshes + "1 1 1 2 1 2 1 1 2 1"),
            "--hetero-process-meshes: mesh 2 has tp 2, expected 1: HDT has no tensor parallelism yet");
  EXPECT_THAT(error_of(Form::kFlagScale, meshes + "1 2 1 2 1 1 2 1 2 1"), HasSubstr("mesh 1 has cp 2"));
  EXPECT_THAT(error_of(Form::kFlagScale, meshes + "1 1 2 2 1 1 1 2 2 1"), HasSubstr("mesh 1 has ep 2"));
  EXPECT_THAT(error_of(Form::kFlagScale, meshes + "1 1 1 2 1 1 1 1 4 1"),
              HasSubstr("mesh 2 has dp 4, mesh 1 has 2"));
  Plan plan = example_plan();
  plan.replicas[1].stages[0].tensor_parallel = 2;
  EXPECT_THAT(strategy_of_plan(plan, nullptr).status().message(),
              HasSubstr("replica 2.stage 1.tensor_parallel: 2 given; HDT has no tensor parallelism yet"));
}

TEST(Convert, MeshesThatDoNotFitAreRefused) {
  const std::string job = "--micro-batch-size 1 ";
  const auto error = [&](const std::string& flags) { return error_of(Form::kFlagScale, job + flags); };
  EXPECT_EQ(error(""), "--hetero-process-meshes: none given");
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 1"),
              HasSubstr("4 numbers, expected tp, cp, ep, dp and pp"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 0 1"), HasSubstr("mesh 1 has dp 0 and pp 1"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 2147483647 2147483647"),
              HasSubstr("expected at most 65536"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 1 2"), HasSubstr("--num-layers: required"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 1 2 --num-layers 3"),
              HasSubstr("no multiple of the 2 stages"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 1 2 --hetero-pipeline-layer-split 3"),
              HasSubstr("1 numbers, the meshes have 2 stages"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 1 2 --hetero-pipeline-layer-split 3 1"),
              HasSubstr("--hetero-device-types: 0 given for 1 meshes"));
  const std::string fits =
      "--hetero-process-meshes 1 1 1 1 2 --hetero-pipeline-layer-split 3 1 --hetero-device-types A ";
  EXPECT_THAT(error(fits + "--num-layers 5"), HasSubstr("sums to 4, --num-layers is 5"));
  EXPECT_THAT(error(fits + "--pipeline-model-parallel-size 3"),
              HasSubstr("--hetero-pipeline-stages: 2 stages, --pipeline-model-parallel-size is 3: 1 short"));
  EXPECT_THAT(error(fits + "--num-layers-per-virtual-pipeline-stage 1"),
              HasSubstr("FlagScale's meshes have none"));
  EXPECT_THAT(error_of(Form::kFlagScale, job + fits, {.ranks = 3}), HasSubstr("2 ranks, --ranks is 3"));
  EXPECT_THAT(error("--hetero-process-meshes 1 1 1 1 1 --num-layers 2 --hetero-device-types ''"),
              HasSubstr("a name is empty"));
  EXPECT_THAT(
      read(Form::kFlagScale, job + "--hetero-process-meshes 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 --num-layers 3 "
                                   "--hetero-device-types A B A")
          .warnings,
      ElementsAre(HasSubstr("a later mesh of A is not on A")));
}

// A file as FlagScale's examples are.
constexpr const char* kYaml = R"(system:
  tensor_model_parallel_size: 4  # the meshes count
  pipeline_model_parallel_size: 3
  use_distributed_optimizer: True
  recompute:
    recompute_granularity: "full"
    recompute_method: "uniform"
    recompute_num_layers: 1
  hetero:
    enable_hetero: True
    # mesh format [tp1,cp1,ep1,dp1,pp1,(tp2,cp2...)]
    hetero_pipeline_layer_split: [6, 2, 4]
    hetero_process_meshes: [1, 1, 1, 2, 1, 1, 1, 1, 2, 2]
    hetero_device_types: ["A800", "BI150"]
    standalone_embedding_stage: False
    hetero_current_device_type: "A800"
model:
  num_layers: 12
  seed: null
  global_batch_size: 32
  micro_batch_size: 2
  blended: [[1, a], [2, b]]
  lists: [{a1: 1}]
)";

TEST(Convert, FlagScalesYamlFilesAreRead) {
  if (error_of(Form::kFlagScale, "hetero_process_meshes:").find("libyaml") != std::string::npos)
    GTEST_SKIP() << "built without libyaml";
  const Warned<Strategy> yaml = read(Form::kFlagScale, kYaml);
  EXPECT_EQ(summary(yaml.value),
            "6 + 2 + 4 of 2 x 8, recompute 6 2 4; 6 + 2 + 4 of 2 x 8, recompute 6 2 4; ");
  EXPECT_EQ(yaml.value.worker({1, 0}).kind, "A800");
  EXPECT_EQ(yaml.value.worker({1, 2}).kind, "BI150");
  EXPECT_THAT(yaml.warnings,
              ElementsAre(AllOf(HasSubstr("left out"), HasSubstr("--blended"),
                                Not(HasSubstr("--use-distributed-optimizer")), Not(HasSubstr("--seed")))));
  EXPECT_TRUE(yaml.value.runtime.use_distributed_optimizer);
  EXPECT_THAT(read(Form::kFlagScale,
                   std::string(kYaml) + "recompute_granularity_per_stage_micro_batch:\n  - [1, 2]\n")
                  .warnings,
              Contains(HasSubstr("recomputation by stage and micro-batch is left out")));
  // Flags behind -- count after the file.
  const std::vector<std::string> words = {"--micro-batch-size", "4"};
  EXPECT_EQ(
      read_flag_form(Form::kFlagScale, kYaml, words, {}).value().value.layout.replica(0).micro_batch_size, 4);
  const auto error = [](const std::string& text) { return error_of(Form::kFlagScale, text); };
  EXPECT_EQ(error("hetero_process_meshes: [1, 1"), "line 2: did not find expected ',' or ']'");
  EXPECT_EQ(error("a: &x 1\nhetero_process_meshes: *x"), "line 2: an alias (*), which is not read here");
  EXPECT_EQ(error("hetero_process_meshes: 1\nb: {hetero_process_meshes: 1}"),
            "line 2: --hetero-process-meshes is given twice");
  EXPECT_EQ(error("hetero_process_meshes: [1]\nb: {hetero_process_meshes: [1]}"),
            "line 2: --hetero-process-meshes is given twice");
  EXPECT_EQ(error("hetero_process_meshes"), "line 1: expected keys with values");
  EXPECT_EQ(error("? [hetero_process_meshes]\n: 1"), "line 1: a key that is no text");
  EXPECT_EQ(error("hetero_process_meshes: " + std::string(40, '[')), "line 1: nested deeper than 32 levels");
  EXPECT_THAT(error("hetero_process_meshes: ${meshes}"), HasSubstr("is a variable of the script"));
  EXPECT_THAT(error("hetero_process_meshes: " + std::string(1 << 20, ' ')),
              HasSubstr("expected at most 1048576"));
  std::string many = "hetero_process_meshes: [1";
  for (int i = 0; i < 65'536; ++i) many += ",1";
  EXPECT_THAT(error(many + "]"), HasSubstr("a list of more than 65536 values"));
}

TEST(Convert, WhatAFormCannotSayIsRefused) {
  const Result<Warned<Strategy>> two = strategy_of_plan(example_plan(), nullptr);
  ASSERT_TRUE(two.is_ok());
  EXPECT_EQ(write_form(Form::kMegatronLayout, two.value().value).status().message(),
            "replica 2: split into 2 + 2 layers, replica 1 into 3 + 1: --pipeline-model-parallel-layout has "
            "one split "
            "for all replicas");
  Plan plan = example_plan();
  plan.replicas[1].stages = plan.replicas[0].stages;
  EXPECT_THAT(
      write_form(Form::kFlagScale, strategy_of_plan(plan, nullptr).value().value).status().message(),
      HasSubstr("replica 2: 2 micro-batches of 1 samples, replica 1 has 4 of 1: FlagScale has the same"));
  plan.replicas[1] = plan.replicas[0];
  EXPECT_THAT(write_form(Form::kFlagScale, strategy_of_plan(plan, nullptr).value().value).value().warnings,
              ElementsAre(HasSubstr("give --hetero-current-device-type on each node")));
  plan.replicas[1].stages[0].node = "d";
  EXPECT_THAT(
      write_form(Form::kFlagScale, strategy_of_plan(plan, nullptr).value().value).status().message(),
      HasSubstr("replica 2.stage 1: on 'd', that of replica 1 is on 'a': a mesh of FlagScale has one kind"));
  plan.replicas = {{1, 1, {{1, "a", 1}, {1, "b", 1}, {1, "c", 1}}}};
  const Cluster cluster = example_cluster();
  EXPECT_THAT(write_form(Form::kFlagScale, strategy_of_plan(plan, &cluster).value().value).status().message(),
              HasSubstr("stages on 'fast' come back behind another kind of device"));
  const Warned<Strategy> chunks =
      read(Form::kMegatronLayout,
           "--pipeline-model-parallel-layout 'Et|t|t|tL' --pipeline-model-parallel-size 2 "
           "--micro-batch-size 1 --global-batch-size 2",
           {.ranks = 2});
  EXPECT_THAT(write_form(Form::kFlagScale, chunks.value).status().message(), HasSubstr("no virtual stages"));
}

TEST(Convert, SettingsThatOnlyAPlanHasAreWarnedOf) {
  Plan plan = example_plan();
  EXPECT_THAT(strategy_of_plan(plan, nullptr).value().warnings, IsEmpty());
  plan.runtime.schedule = ScheduleKind::kZeroBubble;
  plan.runtime.bucket_bytes = 1;
  plan.runtime.overlap_gradients = false;
  plan.runtime.background_send_bytes = 1;
  plan.runtime.lockstep_exchange = true;
  plan.classes["dp"].weight = 3;
  EXPECT_THAT(strategy_of_plan(plan, nullptr).value().warnings,
              ElementsAre(HasSubstr("schedule 'zero-bubble' is left out"), HasSubstr("bucket_bytes 1"),
                          HasSubstr("overlap_gradients"), HasSubstr("background_send_bytes"),
                          HasSubstr("lockstep_exchange"), HasSubstr("[class]")));
}

TEST(Convert, RecomputationGoesAlong) {
  const std::string flags =
      "--hetero-pipeline-stages 2 3 1 --micro-batch-size 1 --recompute-granularity full ";
  const Warned<Strategy> block =
      read(Form::kMegatronFork, flags + "--recompute-method block --recompute-num-layers 2", {.ranks = 2});
  EXPECT_EQ(summary(block.value), "3 + 1 of 1 x 1, recompute 2 1; ");
  const Warned<std::string> written = write(Form::kMegatronFork, block.value);
  EXPECT_THAT(written.value, HasSubstr(" --recompute-granularity full --recompute-method block "
                                       "--recompute-num-layers 2\n"));
  EXPECT_THAT(written.warnings, Contains(HasSubstr("stages recompute 1 to 2 layers")));
  EXPECT_EQ(summary(read(Form::kMegatronFork, flags + "--recompute-method uniform", {.ranks = 2}).value),
            "3 + 1 of 1 x 1, recompute 3 1; ");
  EXPECT_THAT(
      read(Form::kMegatronFork, flags + "--recompute-method uniform --recompute-num-layers 2", {.ranks = 2})
          .warnings,
      ElementsAre(HasSubstr("with 2 layers is left out")));
}

TEST(Convert, TheNumberOfReplicasMustBeKnown) {
  EXPECT_THAT(error_of(Form::kMegatronFork, kTwoKinds), HasSubstr("give --ranks or --cluster"));
  EXPECT_THAT(error_of(Form::kMegatronFork, kTwoKinds, {.ranks = 4}),
              HasSubstr("--ranks 4: no multiple of the 3 stages"));
  EXPECT_THAT(error_of(Form::kMegatronFork, "--num-layers 4 --micro-batch-size-per-dp 3 1", {.ranks = 4}),
              HasSubstr("--ranks 4: the layout has 3 stages in all"));
  EXPECT_THAT(error_of(Form::kMegatronLayout, "Et|tL", {.ranks = 2}), HasSubstr("--micro-batch-size"));
}

// Small texts that would be large layouts.
TEST(Convert, BombsAreRefused) {
  for (const char* flags :
       {"--num-layers 1 --micro-batch-size-per-dp 1000000 1",
        "--num-layers 1 --micro-batch-size-per-dp 2147483647 1 2147483647 1",
        "--num-layers 1000000 --pipeline-model-parallel-size 1000000 --micro-batch-size-per-dp 60000 1",
        "--num-layers 1000000 --num-virtual-stages-per-pipeline-rank 1000000 --micro-batch-size-per-dp 60000 "
        "1",
        "--num-layers 1000000 --num-layers-per-virtual-pipeline-stage 1 --micro-batch-size-per-dp 60000 1"})
    EXPECT_THAT(error_of(Form::kMegatronFork, flags), HasSubstr("expected at most 65536 and 1000000"))
        << flags;
  EXPECT_THAT(error_of(Form::kMegatronLayout,
                       "--pipeline-model-parallel-layout 'E(t|)*900000tL' --pipeline-model-parallel-size 1 "
                       "--micro-batch-size 1",
                       {.ranks = 2}),
              HasSubstr("expected at most"));
  EXPECT_THAT(
      error_of(Form::kMegatronFork, "--hetero-pipeline-stages 2147483647 1 --micro-batch-size-per-dp 1 1"),
      HasSubstr("--hetero-pipeline-stages"));
}

// Any layout that a form takes comes back from it.
TEST(Convert, RandomLayoutsComeBackFromEveryForm) {
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  int said[std::size(kForms)] = {};
  for (int round = 0; round < 500; ++round) {
    const bool alike = pick(0, 1) == 0;
    const int layers = pick(4, 12);
    const int recomputed = pick(0, 3) == 0 ? 1 : 0;
    Plan plan;
    plan.runtime.reduction = ReductionKind::kHdt;
    for (int r = pick(1, 4); r > 0; --r) {
      if (alike && !plan.replicas.empty()) {
        plan.replicas.push_back(plan.replicas.front());
        continue;
      }
      Replica replica{pick(1, 3), pick(1, 4), {}};
      const int stages = pick(1, 4);
      for (int s = 0; s < stages; ++s) {
        const int rest = s + 1 < stages ? 1 : layers - stages + 1;
        replica.stages.push_back({rest, "kind-" + std::to_string(s + 1), 1, recomputed});
      }
      std::ranges::shuffle(replica.stages, random);
      for (int s = 0; s < stages; ++s)
        replica.stages[static_cast<size_t>(s)].node = "kind-" + std::to_string(s + 1);
      plan.replicas.push_back(replica);
    }
    const Result<Warned<Strategy>> before = strategy_of_plan(plan, nullptr);
    ASSERT_TRUE(before.is_ok()) << before.status().message();
    for (const auto& [form, name] : kForms) {
      const Result<Warned<std::string>> written = write_form(form, before.value().value);
      if (!written.is_ok()) {
        ASSERT_TRUE(!alike && (form == Form::kMegatronLayout || form == Form::kFlagScale))
            << written.status().message();
        continue;
      }
      ++said[static_cast<int>(form)];
      if (form == Form::kToml) {
        ASSERT_EQ(plan_of_strategy(before.value().value).value(), plan);
        continue;
      }
      const Warned<Strategy> after =
          read(form, written.value().value, {.ranks = before.value().value.layout.world_size()});
      ASSERT_EQ(summary(after.value), summary(before.value().value)) << name << ": " << written.value().value;
      ASSERT_THAT(after.warnings, Not(Contains(HasSubstr("left out")))) << written.value().value;
    }
  }
  for (const int count : said) EXPECT_GT(count, 50);
}

TEST(Convert, ChunksGoAlong) {
  const std::vector<std::string> more = {
      "--pipeline-model-parallel-size", "2", "--micro-batch-size", "1", "--global-batch-size", "4"};
  for (const char* layout : {"E(tt|)*3ttL", "Et*3|tt|t*3|tL"}) {
    const auto chunks = read_flag_form(Form::kMegatronLayout, layout, more, {.ranks = 4});
    ASSERT_TRUE(chunks.is_ok()) << chunks.status().message();
    EXPECT_EQ(chunks.value().value.layout.replica(1).chunks, 2);
    const Result<Plan> plan = plan_of_strategy(chunks.value().value);
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    EXPECT_EQ(plan.value().runtime.schedule, ScheduleKind::kInterleaved);
    EXPECT_THAT(plan.value().replicas[1].stages[0].chunk_layers, testing::SizeIs(2));
    const auto again = strategy_of_plan(plan.value(), nullptr);
    ASSERT_TRUE(again.is_ok()) << again.status().message();
    EXPECT_EQ(summary(again.value().value), summary(chunks.value().value));
    EXPECT_THAT(again.value().warnings, IsEmpty());
    for (const Form form : {Form::kMegatronFork, Form::kMegatronLayout}) {
      const Warned<std::string> written = write(form, chunks.value().value);
      EXPECT_EQ(summary(read(form, written.value, {.ranks = 4}).value), summary(chunks.value().value))
          << written.value;
    }
  }
  // Interleaved 1F1B wants as many micro-batches as stages, or a multiple.
  const std::vector<std::string> odd = {
      "--pipeline-model-parallel-size", "2", "--micro-batch-size", "1", "--global-batch-size", "2"};
  const auto three = read_flag_form(Form::kMegatronLayout, "E(tt|)*3ttL", odd, {.ranks = 4});
  ASSERT_TRUE(three.is_ok()) << three.status().message();
  EXPECT_THAT(write_form(Form::kToml, three.value().value).status().message(),
              HasSubstr("replica 1.micro_batches: 1 given, expected a multiple of the 2 stages"));
}

}  // namespace
}  // namespace hdt::plan
