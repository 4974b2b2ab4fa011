// job_test.cc: hdt-train over libhdt: four heterogeneous ranks against one process, and wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/training/torch/job_fixture.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobTest : public JobFixture {
 protected:
  void expect_equal_losses(const std::string& split, int global_batch,
                           std::string (*place)(const std::string&) = on_one_node,
                           const std::string& stages = kStages) {
    const ProgramResult four = run_program(
        place(kModel + kFiftySteps + stages + split + " --loss-log " + scratch_.path("four")), kTimeLimit);
    ASSERT_EQ(four.exit_status, 0) << four.output;
    expect_losses_of_one_process(global_batch);
  }

  // Compares with the log "four".
  void expect_losses_of_one_process(int global_batch) {
    const ProgramResult one =
        run_forked_train(kModel + kFiftySteps + " --micro-batch-size " + std::to_string(global_batch) +
                             " --loss-log " + scratch_.path("one"),
                         kTimeLimit);
    ASSERT_EQ(one.exit_status, 0) << one.output;
    const std::vector<double> of_four = read_losses(scratch_.path("four"));
    const std::vector<double> of_one = read_losses(scratch_.path("one"));
    ASSERT_EQ(of_four.size(), 50U);
    ASSERT_EQ(of_one.size(), 50U);
    for (size_t step = 0; step < of_one.size(); ++step) {
      EXPECT_NEAR(of_four[step], of_one[step], 1e-5 * of_one[step]) << "step " << step + 1;
    }
    EXPECT_NEAR(of_one.front(), std::log(257.0), 0.2);
    EXPECT_LT(of_one.back(), 0.7 * of_one.front());
  }

  // Four ranks run the plan by the command that hdt-plan export prints; its steps have 12 samples.
  void expect_exported_plan_equals_one_process(const std::string& text) {
    const std::string plan = scratch_.path("plan.toml");
    const std::string cluster = scratch_.path("cluster.toml");
    std::ofstream(cluster)
        << "[[node]]\nname = \"localhost\"\ndevice = \"cpu\"\ndevices = 4\nmemory_bytes = 1\n";
    std::ofstream(plan) << text;
    std::string model = kModel;
    model.erase(model.find(" --num-layers 4"), std::string(" --num-layers 4").size());
    const ProgramResult exported =
        run_program(kPlanProgram + " export " + plan + " -c " + cluster + " -- " + model + kFiftySteps +
                        " --loss-log " + scratch_.path("four"),
                    kTimeLimit);
    ASSERT_EQ(exported.exit_status, 0) << exported.output;
    const std::string script = scratch_.path("train.sh");
    std::ofstream(script) << exported.output;
    const std::string folder = kProgram.substr(0, kProgram.rfind('/'));
    const ProgramResult four = run_program("env PATH=" + folder + ":$PATH bash " + script, kTimeLimit);
    ASSERT_EQ(four.exit_status, 0) << exported.output << four.output;
    expect_losses_of_one_process(12);
  }
};

TEST_F(JobTest, FourHeterogeneousRanksEqualOneProcess) {
  expect_equal_losses(" --micro-batch-size 2 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12", 12);
}

TEST_F(JobTest, OverTwoNodesAsWell) {
  expect_equal_losses(" --micro-batch-size 2 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12", 12,
                      on_two_nodes);
}

// The first stage of the second replica keeps no optimizer states: those of the first replica have all of its
// layers.
TEST_F(JobTest, WithUnequalShardsOverTwoNodesAsWell) {
  expect_equal_losses(
      " --micro-batch-size 2 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12 "
      "--ddp-bucket-size 3000 --use-distributed-optimizer --optimizer-shard-weights 3 2 0 1",
      12, on_two_nodes);
}

TEST_F(JobTest, InterleavedOverTwoNodesAsWell) {
  expect_equal_losses(
      " --micro-batch-size 2 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12 "
      "--ddp-bucket-size 3000 --use-distributed-optimizer --optimizer-shard-weights 3 2 0 1 --check-weights "
      "10 "
      "--recompute-granularity full --recompute-method block --recompute-num-layers 1",
      12, on_two_nodes, kInterleaved);
}

TEST_F(JobTest, MicroBatchSizesDifferUnderZeroBubble) {
  // A rank that is slowed down computes the same.
  expect_equal_losses(
      " --schedule zero-bubble --slow-down 1 1.5 3 1 --micro-batch-size-per-dp 1 3 1 1 "
      "--num-micro-batches-per-dp 1 2 1 4 "
      "--global-batch-size 10",
      10);
}

TEST_F(JobTest, AnExportedPlanRunsAndEqualsOneProcess) {
  expect_exported_plan_equals_one_process(R"(schedule = "gpipe"
[[replica]]
micro_batch_size = 2
micro_batches = 4
  [[replica.stage]]
  layers = 3
  node = "localhost"
  [[replica.stage]]
  layers = 1
  node = "localhost"
[[replica]]
micro_batch_size = 1
micro_batches = 4
  [[replica.stage]]
  layers = 2
  node = "localhost"
  [[replica.stage]]
  layers = 2
  node = "localhost"
)");
}

// The first replica has two chunks of the model on each stage, and the second one has one.
TEST_F(JobTest, AnExportedPlanWithChunksEqualsOneProcess) {
  expect_exported_plan_equals_one_process(R"(schedule = "interleaved"
[[replica]]
micro_batch_size = 2
micro_batches = 4
  [[replica.stage]]
  layers = [1, 1]
  node = "localhost"
  recompute_layers = 1
  [[replica.stage]]
  layers = [1, 1]
  node = "localhost"
[[replica]]
micro_batch_size = 1
micro_batches = 4
  [[replica.stage]]
  layers = 3
  node = "localhost"
  [[replica.stage]]
  layers = 1
  node = "localhost"
)");
}

// One layer of the first stage and both of the second: the plan's numbers, and the bits of the run without.
TEST_F(JobTest, APlanThatRecomputesEndsInTheSameBits) {
  const std::string plan = scratch_.path("plan.toml");
  const auto losses = [&](const std::string& first, const std::string& second, const std::string& said) {
    std::ofstream(plan) << "[[replica]]\nmicro_batch_size = 2\nmicro_batches = 4\n"
                           "  [[replica.stage]]\n  layers = 2\n  node = \"here\"\n"
                        << first << "  [[replica.stage]]\n  layers = 2\n  node = \"here\"\n"
                        << second;
    const ProgramResult run =
        run_program("mpirun --oversubscribe --bind-to none -np 2 " + kProgram + kModel +
                        " --train-iters 8 --plan " + plan + " --loss-log " + scratch_.path("log"),
                    kTimeLimit);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr(said));
    return read_losses(scratch_.path("log"));
  };
  const std::vector<double> recomputed =
      losses("  recompute_layers = 1\n", "  recompute_layers = 2\n", "recomputed layers: replica 0: 1 + 2\n");
  EXPECT_EQ(recomputed.size(), 8U);
  EXPECT_EQ(losses("", "", "layout: 2 ranks"), recomputed);
  const std::string attention = "  recompute_granularity = \"selective\"\n";
  EXPECT_EQ(losses("  recompute_layers = 1\n" + attention, "  recompute_layers = 2\n" + attention,
                   "recomputed attention of layers: replica 0: 1 + 2\n"),
            recomputed);
  // Each stage has a granularity of its own.
  EXPECT_EQ(losses("  recompute_layers = 1\n", "  recompute_layers = 2\n" + attention,
                   "recomputed attention of layers: replica 0: 0 + 2\n"),
            recomputed);
}

TEST_F(JobTest, FlagsBesideAPlanAreRefused) {
  const std::string plan = scratch_.path("plan.toml");
  std::ofstream(plan) << "[[replica]]\nmicro_batch_size = 2\nmicro_batches = 4\n"
                         "  [[replica.stage]]\n  layers = 3\n  node = \"here\"\n"
                         "  [[replica.stage]]\n  layers = 1\n  node = \"here\"\n";
  const std::pair<const char*, const char*> wrong[] = {
      {" --micro-batch-size 2", "--micro-batch-size and --plan exclude each other"},
      {" --hetero-pipeline-stages 2 2 2", "--hetero-pipeline-stages and --plan exclude each other"},
      {" --recompute-granularity full", "--recompute-granularity and --plan exclude each other"},
      {" --recompute-method block", "--recompute-method and --plan exclude each other"},
      {" --recompute-num-layers 1", "--recompute-num-layers and --plan exclude each other"},
      {" --num-layers 5", "--num-layers 5: --plan "},
      {" --global-batch-size 9", "has 8 samples a step"},
      {"", "has 2 stages in all, but the job has 1 ranks"}};
  for (const auto& [flags, reason] : wrong) {
    const ProgramResult run = run_forked_train(kText + " --plan " + plan + flags, kTimeLimit);
    EXPECT_EQ(run.exit_status, 2) << flags;
    EXPECT_THAT(run.output, HasSubstr(reason)) << flags;
  }
  std::ofstream(plan, std::ios::app) << "  tensor_parallel = 2\n";
  const ProgramResult run = run_forked_train(kText + " --plan " + plan, kTimeLimit);
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_THAT(run.output, HasSubstr("replica 1.stage 2.tensor_parallel: 2 given; hdt-train has no tensor"));
}

TEST_F(JobTest, ReportsEverythingThatWasAskedFor) {
  const ProgramResult run =
      run_program(kFourRanks + kProgram + kModel + kStages +
                      " --micro-batch-size 2 --num-micro-batches-per-dp 1 2 1 1 --train-iters 5 "
                      "--log-interval 1 --sample-tokens 40"
                      " --loss-curve " +
                      scratch_.path("curve.svg") + " --tensorboard-dir " + scratch_.path("events"),
                  kTimeLimit);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("step 5/5 | loss"), HasSubstr("tokens/s"), HasSubstr("unigram entropy"),
                    HasSubstr(scratch_.path("curve.svg")), HasSubstr("sample:\nAnd the ")));
  EXPECT_FALSE(std::filesystem::is_empty(scratch_.path("events")));
  EXPECT_GT(std::filesystem::file_size(scratch_.path("curve.svg.gnuplot")), 500U);
  if (run.output.find("'gnuplot': No such file") != std::string::npos) GTEST_SKIP() << run.output;
  EXPECT_THAT(run.output, HasSubstr("loss curve: " + scratch_.path("curve.svg")));
  EXPECT_GT(std::filesystem::file_size(scratch_.path("curve.svg")), 500U);
}

// A stage keeps keys and values of its own; the text goes past the context of 32 tokens (kModel).
TEST_F(JobTest, DrawsWhatItsFlagsAllow) {
  const auto sample = [](const std::string& flags) {
    const ProgramResult run = run_forked_train(
        kModel + " --micro-batch-size 2 --train-iters 5 --sample-tokens 50" + flags, kTimeLimit);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    const size_t at = run.output.find("sample:\n");
    EXPECT_NE(at, std::string::npos) << run.output;
    return at == std::string::npos ? run.output : run.output.substr(at);
  };
  const std::string greedy = sample(" --sample-temperature 0");
  EXPECT_EQ(sample(" --sample-temperature 1 --sample-top-k 1"), greedy);
  EXPECT_EQ(sample(" --sample-temperature 1 --sample-top-p 0.000001"), greedy);
  const std::string drawn = sample(" --sample-temperature 1 --sample-top-k 40 --sample-top-p 0.9");
  EXPECT_NE(drawn, greedy);
  EXPECT_EQ(sample(" --sample-temperature 1 --sample-top-k 40 --sample-top-p 0.9"), drawn);
}

// Files that hdt-plan can use: of both emulated devices everything, with links between and inside their
// nodes.
TEST_F(JobTest, ProfilesThisMachineForThePlanner) {
  const std::string folder = scratch_.path("profile");
  const ProgramResult run = run_program(
      HDT_PLAN " profile " + folder +
          " --ranks 2 -- --num-layers 3 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 64"
          " --seq-length 32 --profile-device fast slow:3 --profile-micro-batch-sizes 1 2",
      kTimeLimit);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  const auto model = plan::read_model(folder + "/model.toml");
  const auto profile = plan::read_profile(folder + "/profile.toml");
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  ASSERT_TRUE(profile.is_ok()) << profile.status().message();
  EXPECT_TRUE(plan::check_profile(profile.value(), model.value()).is_ok());
  // Beside communication each device computes as long as alone, or longer; how long depends on who shares the
  // cores.
  ASSERT_EQ(profile.value().overlap_slowdowns.size(), 2U);
  for (const auto& [device, slowdown] : profile.value().overlap_slowdowns) EXPECT_GE(slowdown, 1) << device;
  EXPECT_THAT(run.output, HasSubstr("times as long beside communication"));
  // A process with libtorch, and no more than that.
  ASSERT_EQ(profile.value().fixed_bytes.size(), 2U);
  for (const auto& [device, bytes] : profile.value().fixed_bytes) {
    EXPECT_GT(bytes, 10 << 20) << device;
    EXPECT_LT(bytes, 1 << 30) << device;
  }
  EXPECT_EQ(model.value().num_layers(), 3);
  // 4 h^2 of attention, 3 h f of the MLP, two norms.
  EXPECT_EQ(model.value().unit(1).parameter_bytes.at(1), 4 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32));
  plan::Cluster cluster;
  plan::Plan split;
  for (const char* device : {"fast", "slow"}) {
    cluster.nodes.push_back({device, device, 2, int64_t{1} << 33});
    split.replicas.push_back({2, 3, {{2, device, 1}, {1, device, 1}}});
  }
  const auto step = plan::predict({cluster, model.value(), profile.value(), {}}, split);
  ASSERT_TRUE(step.is_ok()) << step.status().message();
  EXPECT_GT(step.value().step_seconds, 0);
  for (const auto& [key, link] : profile.value().links) EXPECT_EQ(link.allreduce.size(), 6U);
  // Layers alone have attention. Without its probabilities of all heads they keep that much less.
  for (const auto& [key, cost] : profile.value().compute) {
    ASSERT_EQ(cost.recomputed_attention.has_value(), key.layer == "layer") << key.layer;
    if (!cost.recomputed_attention) continue;
    const int64_t probabilities = int64_t{key.micro_batch_size} * 4 * 32 * 32 * int64_t{sizeof(float)};
    EXPECT_LE(cost.recomputed_attention->activation_bytes, cost.activation_bytes - probabilities);
    EXPECT_GT(cost.recomputed_attention->activation_bytes, 0);
  }
  split.replicas[0].stages[0].recomputed_layers = 2;
  split.replicas[0].stages[0].attention_only = true;
  const auto again = plan::predict({cluster, model.value(), profile.value(), {}}, split);
  ASSERT_TRUE(again.is_ok()) << again.status().message();
  EXPECT_GT(again.value().workers[0].compute, step.value().workers[0].compute);
  EXPECT_LT(again.value().peak_memory_bytes[0], step.value().peak_memory_bytes[0]);
}

TEST_F(JobTest, WrongUsageIsOneLineAndExitTwo) {
  const auto expect_usage_error = [](const std::string& flags, const std::string& named) {
    const ProgramResult run = run_forked_train(flags, kTimeLimit);
    EXPECT_EQ(run.exit_status, 2) << run.output;
    EXPECT_THAT(run.output, HasSubstr(named));
    EXPECT_EQ(std::count(run.output.begin(), run.output.end(), '\n'), 1) << run.output;
  };
  expect_usage_error(kText + " --hidden-size 0", "--hidden-size");
  expect_usage_error(kText + " --hidden-size 130", "2 left over");
  expect_usage_error(kText + " --no-such-flag", "--no-such-flag");
  expect_usage_error("", "--data-path");
  expect_usage_error(kText + " --slow-down 1", "--slow-down: expected pairs");
  expect_usage_error(kText + " --slow-down 1 0.5", "factor 0.5 given");
  expect_usage_error(kText + " --slow-down 2 3", "--slow-down: for 2 ranks, expected the 1 of the job");
  expect_usage_error(kText + " --threads 2 --slow-down 1 3", "--threads 2");
  expect_usage_error("--profile /tmp --profile-device a:x", "'a:x' given");
  expect_usage_error("--profile /tmp --profile-device a a", "a name that is not empty, once");
  expect_usage_error(kText + " --pipeline-model-parallel-size 2",
                     "1 ranks do not divide into replicas of 2 stages");
  expect_usage_error(kText + " --hetero-pipeline-stages 1 3", "1 short");
  expect_usage_error(kText + " --vocab-size 64", "--vocab-size 64");
  expect_usage_error("--text /no/such/file", "/no/such/file");
  expect_usage_error("--data-path /no/such/prefix", "/no/such/prefix");
}

TEST_F(JobTest, DifferentFlagsOnDifferentRanksAreNoticed) {
  const auto expect_noticed = [](const std::string& first, const std::string& second,
                                 const std::string& message) {
    const std::string rank = "-np 1 " + kProgram + kModel + " --train-iters 5 --micro-batch-size 1";
    const ProgramResult run = run_program(
        "mpirun --oversubscribe --bind-to none " + rank + first + " : " + rank + second, kTimeLimit);
    EXPECT_NE(run.exit_status, 0);
    EXPECT_THAT(run.output, HasSubstr(message));
  };
  expect_noticed(" --lr 1e-3", " --lr 2e-3", "different optimizer settings");
  const std::string sharded = " --use-distributed-optimizer";
  expect_noticed(sharded, "", "different shards of the optimizer");
  expect_noticed(sharded, sharded + " --optimizer-shard-weights 1 2", "different shards of the optimizer");
}

}  // namespace
}  // namespace hdt::training::testing
