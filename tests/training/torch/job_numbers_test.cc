// job_numbers_test.cc: hdt-train over libhdt in bf16, fp16 and fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/training/torch/job_fixture.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobNumbersTest : public JobFixture {};

// Unequal ranks in bf16 are one process in bf16 and are not far from fp32, also with several chunks of the
// model. The state that they write is one of fp32, from which a run in fp32 goes on.
TEST_F(JobNumbersTest, InBf16OverTwoNodesAsWell) {
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
        run_forked_train(kModel + " --lr 3e-3 --train-iters 20 --micro-batch-size 12 --loss-log " +
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

// In fp64 unequal ranks over libhdt are one process to 1e-11. The same replicas on other stages, from a
// checkpoint in the middle, are the same to the last bit.
TEST_F(JobNumbersTest, InFp64LayoutsAreTheSame) {
  const std::string arguments = kModel +
                                " --lr 3e-3 --fp64 --micro-batch-size 2 --num-micro-batches-per-dp 1 4 1 2 "
                                "--global-batch-size 12 --train-iters 20 --loss-log " +
                                scratch_.path("log");
  const auto losses_of = [&](const std::string& program) {
    const ProgramResult run = run_program(program, kTimeLimit);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("types: parameters and activations fp64, gradients fp64, the "
                                      "optimizer's states fp64"));
    return read_losses(scratch_.path("log"));
  };
  const std::vector<double> of_four =
      losses_of(on_two_nodes(arguments + kStages + " --save-interval 7 --save " + scratch_.path("save")));
  const std::vector<double> of_one =
      losses_of(kProgram + kModel + " --lr 3e-3 --fp64 --train-iters 20 --micro-batch-size 12 --loss-log " +
                scratch_.path("log"));
  ASSERT_EQ(of_four.size(), 20U);
  ASSERT_EQ(of_one.size(), 20U);
  for (size_t step = 0; step < of_one.size(); ++step)
    EXPECT_NEAR(of_four[step], of_one[step], 1e-11 * of_one[step]) << "step " << step + 1;
  std::filesystem::remove_all(scratch_.path("save") + "/iter_0000020");
  std::filesystem::remove_all(scratch_.path("save") + "/latest_checkpointed_iteration.txt");
  const std::vector<double> rest = losses_of(
      on_one_node(arguments + kInterleaved + " --use-distributed-optimizer --ddp-bucket-size 3000 --load " +
                  scratch_.path("save")));
  // The log of a run that goes on goes on, too: behind the 20 steps of one process.
  ASSERT_EQ(rest.size(), 26U);
  EXPECT_EQ(std::vector<double>(rest.begin() + 20, rest.end()),
            std::vector<double>(of_four.begin() + 14, of_four.end()));
}

// With three owners the order of a sum matters. It is the same in an allreduce of everything and in
// reduce-scatters of buckets, on one node and on two, with stages and without.
TEST_F(JobNumbersTest, InFp64ThreeReplicasMakeTheSameBitsOnOtherStages) {
  const auto losses_of = [&](const std::string& log, const std::string& more) {
    return kModel +
           " --lr 3e-3 --fp64 --micro-batch-size 1 --num-micro-batches-per-dp 1 3 2 2 --train-iters 12 " +
           "--use-tp-pp-dp-mapping --loss-log " + scratch_.path(log) + more;
  };
  const ProgramResult two_stages =
      run_program(on_two_nodes(losses_of("four",
                                         " --hetero-pipeline-stages 2 1 3 --hetero-pipeline-stages 1 4 "
                                         "--hetero-pipeline-stages 1 4")),
                  kTimeLimit);
  ASSERT_EQ(two_stages.exit_status, 0) << two_stages.output;
  const ProgramResult others =
      run_program(on_one_node(losses_of("other",
                                        " --hetero-pipeline-stages 1 4 --hetero-pipeline-stages 1 4 "
                                        "--hetero-pipeline-stages 2 3 1 --use-distributed-optimizer "
                                        "--ddp-bucket-size 3000 --schedule zero-bubble")),
                  kTimeLimit);
  ASSERT_EQ(others.exit_status, 0) << others.output;
  const std::vector<double> expected = read_losses(scratch_.path("four"));
  EXPECT_EQ(expected.size(), 12U);
  EXPECT_EQ(read_losses(scratch_.path("other")), expected);
}

// Of a loss log.
std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The loss scale falls from where it is too large, and grows twice; the run goes on in the middle of a window
// in the same bits, with its scale, its counters and its steps that were skipped.
TEST_F(JobNumbersTest, InFp16OverTwoNodesAsWell) {
  const std::string arguments =
      kModel +
      " --lr 3e-3 --fp16 --initial-loss-scale 8e6 --loss-scale-window 5 --micro-batch-size 2 "
      "--num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12 --use-distributed-optimizer --train-iters "
      "25" +
      kStages + " --loss-log ";
  const ProgramResult four = run_program(
      on_two_nodes(arguments + scratch_.path("four") + " --save-interval 17 --save " + scratch_.path("save")),
      kTimeLimit);
  ASSERT_EQ(four.exit_status, 0) << four.output;
  EXPECT_THAT(four.output, AllOf(HasSubstr("types: parameters and activations fp16, gradients fp16"),
                                 HasSubstr(" steps skipped")));
  const std::vector<nlohmann::json> lines = read_lines(scratch_.path("four"));
  ASSERT_EQ(lines.size(), 25U);
  EXPECT_EQ(lines.front().at("loss_scale"), 8e6);
  EXPECT_EQ(lines.front().at("skipped"), true);
  const int skipped = lines.back().at("skipped_steps");
  EXPECT_GT(skipped, 1);
  EXPECT_EQ(std::ranges::count_if(lines, [](const auto& line) { return line.at("skipped"); }), skipped);
  EXPECT_LT(lines.back().at("loss"), 0.95 * lines.front().at("loss").get<double>());
  std::filesystem::remove_all(scratch_.path("save") + "/iter_0000025");
  std::filesystem::remove_all(scratch_.path("save") + "/latest_checkpointed_iteration.txt");
  const ProgramResult rest = run_program(
      on_two_nodes(arguments + scratch_.path("rest") + " --load " + scratch_.path("save")), kTimeLimit);
  ASSERT_EQ(rest.exit_status, 0) << rest.output;
  const std::vector<nlohmann::json> others = read_lines(scratch_.path("rest"));
  ASSERT_EQ(others.size(), 8U);
  for (size_t i = 0; i < others.size(); ++i) {
    for (const char* key : {"step", "loss", "loss_scale", "skipped", "skipped_steps", "learning_rate"})
      EXPECT_EQ(others[i].at(key), lines[17 + i].at(key)) << key << ", line " << i;
  }
  // One process in fp32 is not far, without a step that is skipped.
  const ProgramResult half = run_forked_train(
      kModel + " --lr 3e-3 --fp16 --loss-scale 65536 --train-iters 15 --micro-batch-size 12 --loss-log " +
          scratch_.path("half"),
      kTimeLimit);
  const ProgramResult whole = run_forked_train(
      kModel + " --lr 3e-3 --train-iters 15 --micro-batch-size 12 --loss-log " + scratch_.path("whole"),
      kTimeLimit);
  ASSERT_EQ(half.exit_status, 0) << half.output;
  ASSERT_EQ(whole.exit_status, 0) << whole.output;
  const std::vector<double> of_half = read_losses(scratch_.path("half"));
  const std::vector<double> of_whole = read_losses(scratch_.path("whole"));
  ASSERT_EQ(of_half.size(), of_whole.size());
  for (size_t step = 0; step < of_half.size(); ++step)
    EXPECT_NEAR(of_half[step], of_whole[step], 3e-3 * of_whole[step]) << "step " << step + 1;
  // A scale that cannot fall ends the run at once.
  const ProgramResult ended =
      run_forked_train(kModel + " --fp16 --loss-scale 1e15 --train-iters 5", kTimeLimit);
  EXPECT_EQ(ended.exit_status, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("training diverged at step 1: loss "),
                                  HasSubstr("with the loss scale 1000000000000000, first on rank 0")));
}

}  // namespace
}  // namespace hdt::training::testing
