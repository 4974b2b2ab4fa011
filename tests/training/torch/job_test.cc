// job_test.cc: hdt-train over libhdt: four heterogeneous ranks against one process, and wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/training/torch/program.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Any text will do: the licence is in every checkout.
const std::string kText = std::string("--text ") + HDT_SOURCE_DIR + "/LICENSE";
const std::string kModel =
    " --num-layers 4 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 64 --seq-length 32"
    " --lr-warmup-iters 5 " +
    kText;
// Seconds for one program: many times what it takes on an idle machine.
constexpr int kTimeLimit = 280;
const std::string kFiftySteps = " --train-iters 50 --lr 3e-3";
const std::string kProgram = HDT_TRAIN;
const std::string kPlanProgram = HDT_PLAN;
const std::string kFourRanks = "mpirun --oversubscribe --bind-to none -np 4 ";
const std::string kStages =
    " --use-tp-pp-dp-mapping --hetero-pipeline-stages 1 3 1 1 --hetero-pipeline-stages 2 2 2";
// The first replica has two chunks of the model on each of its stages, the second one has one.
const std::string kInterleaved =
    " --use-tp-pp-dp-mapping --hetero-pipeline-stages 1 1 1 1 1 1 --hetero-pipeline-stages 2 3 1"
    " --schedule interleaved --num-virtual-stages-per-pipeline-rank 2 1";

class JobTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // A test machine may run everything as root; mpirun wants that confirmed.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
  }

  // The command line of four ranks on one node, which host its daemon themselves.
  static std::string on_one_node(const std::string& arguments) { return kFourRanks + kProgram + arguments; }
  // Two ranks on each of two nodes, which meet over TCP.
  static std::string on_two_nodes(const std::string& arguments) {
    const auto node = [&](const std::string& number) {
      return "-np 2 -x HDT_NODE_NAME=job-" + std::to_string(getpid()) + "-" + number +
             " -x HDT_NICS_ADDRESSES=127.0.1." + number + " " + kProgram + arguments;
    };
    return "mpirun --oversubscribe --bind-to none " + node("1") + " : " + node("2");
  }

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
        run_program(kProgram + kModel + kFiftySteps + " --micro-batch-size " + std::to_string(global_batch) +
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

  ScratchDirectory scratch_;
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

// Unequal ranks in bf16 are one process in bf16 and are not far from fp32, also with several chunks of the
// model. The state that they write is one of fp32, from which a run in fp32 goes on.
TEST_F(JobTest, InBf16OverTwoNodesAsWell) {
  const std::string arguments =
      kModel + " --lr 3e-3" +
      " --micro-batch-size 2 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12 "
      "--ddp-bucket-size 3000 --use-distributed-optimizer --optimizer-shard-weights 3 2 0 1 --check-weights "
      "5 "
      "--save ";
  const auto losses_of_four = [&](const std::string& stages) {
    const std::string folder = stages == kStages ? "save" : "save-interleaved";
    const ProgramResult four = run_program(
        on_two_nodes(arguments + scratch_.path(folder) + stages +
                     " --train-iters 20 --bf16 --grad-reduce-in-bf16 --loss-log " + scratch_.path("four")),
        kTimeLimit);
    EXPECT_EQ(four.exit_status, 0) << four.output;
    EXPECT_THAT(four.output, HasSubstr("types: parameters and activations bf16, gradients bf16"));
    return read_losses(scratch_.path("four"));
  };
  const auto losses_of_one = [&](const std::string& type) {
    const ProgramResult one =
        run_program(kProgram + kModel + " --lr 3e-3 --train-iters 20 --micro-batch-size 12 --loss-log " +
                        scratch_.path("one") + type,
                    kTimeLimit);
    EXPECT_EQ(one.exit_status, 0) << one.output;
    return read_losses(scratch_.path("one"));
  };
  const std::vector<double> of_four = losses_of_four(kStages);
  const std::vector<double> of_chunks = losses_of_four(kInterleaved);
  ASSERT_EQ(of_four.size(), 20U);
  ASSERT_EQ(of_chunks.size(), 20U);
  for (const char* type : {" --bf16 --grad-reduce-in-bf16", " --bf16 --schedule zero-bubble", ""}) {
    const std::vector<double> of_one = losses_of_one(type);
    ASSERT_EQ(of_one.size(), 20U) << type;
    for (size_t step = 0; step < of_one.size(); ++step) {
      EXPECT_NEAR(of_four[step], of_one[step], 0.01 * of_one[step]) << type << ", step " << step + 1;
      EXPECT_NEAR(of_chunks[step], of_one[step], 0.01 * of_one[step]) << type << ", step " << step + 1;
    }
    EXPECT_LT(of_one.back(), 0.85 * of_one.front());
  }
  // The state of the chunks goes on without chunks.
  const ProgramResult further =
      run_program(on_one_node(arguments + scratch_.path("further") + kStages + " --train-iters 25 --load " +
                              scratch_.path("save-interleaved")),
                  kTimeLimit);
  ASSERT_EQ(further.exit_status, 0) << further.output;
  EXPECT_THAT(further.output, HasSubstr("after step 20"));
  EXPECT_THAT(further.output, HasSubstr("parameters and activations fp32"));
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
  const std::string plan = scratch_.path("plan.toml");
  const std::string cluster = scratch_.path("cluster.toml");
  std::ofstream(cluster)
      << "[[node]]\nname = \"localhost\"\ndevice = \"cpu\"\ndevices = 4\nmemory_bytes = 1\n";
  std::ofstream(plan) << R"(schedule = "gpipe"
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
)";
  std::string model = kModel;
  model.erase(model.find(" --num-layers 4"), std::string(" --num-layers 4").size());
  const ProgramResult exported = run_program(kPlanProgram + " export " + plan + " -c " + cluster + " -- " +
                                                 model + kFiftySteps + " --loss-log " + scratch_.path("four"),
                                             kTimeLimit);
  ASSERT_EQ(exported.exit_status, 0) << exported.output;
  const std::string script = scratch_.path("train.sh");
  std::ofstream(script) << exported.output;
  const std::string folder = kProgram.substr(0, kProgram.rfind('/'));
  const ProgramResult four = run_program("env PATH=" + folder + ":$PATH bash " + script, kTimeLimit);
  ASSERT_EQ(four.exit_status, 0) << exported.output << four.output;
  expect_losses_of_one_process(12);
}

// One layer of the first stage and both of the second: the plan's numbers, and the bits of the run without.
TEST_F(JobTest, APlanThatRecomputesEndsInTheSameBits) {
  const std::string plan = scratch_.path("plan.toml");
  const auto losses = [&](const char* first, const char* second, const std::string& said) {
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
    const ProgramResult run = run_program(kProgram + " " + kText + " --plan " + plan + flags, kTimeLimit);
    EXPECT_EQ(run.exit_status, 2) << flags;
    EXPECT_THAT(run.output, HasSubstr(reason)) << flags;
  }
  std::ofstream(plan, std::ios::app) << "  tensor_parallel = 2\n";
  const ProgramResult run = run_program(kProgram + " " + kText + " --plan " + plan, kTimeLimit);
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
    const ProgramResult run = run_program(
        kProgram + kModel + " --micro-batch-size 2 --train-iters 5 --sample-tokens 50" + flags, kTimeLimit);
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
}

TEST_F(JobTest, WrongUsageIsOneLineAndExitTwo) {
  const auto expect_usage_error = [](const std::string& flags, const std::string& named) {
    const ProgramResult run = run_program(kProgram + " " + flags, kTimeLimit);
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
