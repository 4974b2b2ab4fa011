// datasets_test.cc: several datasets with weights, and tokens whose loss does not count.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/training/train_command/datasets.h"
#include "tests/training/train_command/small_run.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainDatasets : public ::testing::Test {
 protected:
  // The tokens that counted, by step.
  std::vector<int64_t> counted(const std::string& log) const {
    std::vector<int64_t> tokens;
    std::ifstream file(scratch_.path(log));
    for (std::string line; std::getline(file, line);)
      tokens.push_back(nlohmann::json::parse(line).at("tokens").get<int64_t>());
    return tokens;
  }
  // The loss of one step.
  static double loss_of_step(const std::string& path, int64_t step) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json entry = nlohmann::json::parse(line);
      if (entry.at("step") == step && entry.contains("loss")) return entry.at("loss");
    }
    return std::nan("");
  }
  std::string set(const std::string& name) const { return scratch_.path(name); }

  ScratchDirectory scratch_;
};

TEST_F(TrainDatasets, AreBlendedByTheirWeights) {
  write_dataset(set("a"), ElementType::kUint16, std::vector<int64_t>(500, 7));
  write_dataset(set("b"), ElementType::kUint8, std::vector<int64_t>(300, 9));
  const std::string flags = " --data-path 3 " + set("a") + " 1 " + set("b") +
                            " --split 8,2 --train-iters 100 --lr 0.02 --micro-batch-size 8";
  const ProgramResult run = train(flags + " --loss-log " + scratch_.path("log"));
  ASSERT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("data: 500 tokens from " + set("a")), HasSubstr("weight 3"),
                                HasSubstr("data: 300 tokens from " + set("b")), HasSubstr("weight 1"),
                                HasSubstr("validation at step 100")));
  // A token is followed by itself, so after the first token of a sample nothing is left to know.
  EXPECT_LT(loss_of_step(scratch_.path("log"), 100), 0.2);
  // Another weight is another run.
  ASSERT_EQ(train(flags + " --save " + scratch_.path("saved")).exit_status, 0);
  expect_refused(train(" --data-path 2 " + set("a") + " 1 " + set("b") +
                       " --split 8,2 --micro-batch-size 8 --load " + scratch_.path("saved")),
                 2, "weight 2: 500 tokens");
}

TEST_F(TrainDatasets, RefuseWordsThatAreNoPairs) {
  expect_refused(train(" --data-path a b c"), 2, "--data-path: 3 words given, expected one prefix");
  expect_refused(train(" --data-path a b"), 2, "--data-path: 'a' given before b, expected a weight above 0");
  expect_refused(train(" --data-path 0 b"), 2, "--data-path: '0' given before b");
  write_dataset(set("a"), ElementType::kUint16, std::vector<int64_t>(500, 7));
  write_dataset(set("b"), ElementType::kUint16, std::vector<int64_t>(5, 7));
  EXPECT_THAT(train(" --data-path 1 " + set("a") + " 1 " + set("b")).output,
              HasSubstr("--data-path " + set("b") + ": the data holds 5 tokens"));
}

// Documents of 7 tokens and their end: of 8 inputs of a sample one is an end, and the token after it does
// not count.
TEST_F(TrainDatasets, TheLossAfterTheEndOfADocumentDoesNotCount) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 800; ++i) tokens.push_back(i % 8 == 7 ? 256 : i % 5);
  write_dataset(set("a"), ElementType::kUint16, tokens);
  const std::string flags = " --data-path " + set("a") + " --eod-mask-loss";
  const auto log = [&](const std::string& name) { return " --loss-log " + scratch_.path(name); };
  ASSERT_EQ(train(flags + " --micro-batch-size 6" + log("one")).exit_status, 0);
  EXPECT_EQ(counted("one"), std::vector<int64_t>(5, 6 * 7));
  ASSERT_EQ(train(" --data-path " + set("a") + " --micro-batch-size 6" + log("all")).exit_status, 0);
  EXPECT_EQ(counted("all"), std::vector<int64_t>(5, 6 * 8));
  EXPECT_NE(read_losses(scratch_.path("one")), read_losses(scratch_.path("all")));
  const ProgramResult three = train(flags + log("three") +
                                        " --use-tp-pp-dp-mapping --hetero-pipeline-stages 1 2 "
                                        "--hetero-pipeline-stages 2 1 1 --micro-batch-size 1 "
                                        "--num-micro-batches-per-dp 1 2 1 4",
                                    3);
  ASSERT_EQ(three.exit_status, 0) << three.output;
  EXPECT_EQ(counted("three"), counted("one"));
  const std::vector<double> expected = read_losses(scratch_.path("one"));
  const std::vector<double> found = read_losses(scratch_.path("three"));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]);
}

// Stages in the middle find the borders of documents, too.
TEST_F(TrainDatasets, DocumentsAreApartOnEveryLayout) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 800; ++i) tokens.push_back(i % 5 == 4 ? 256 : i % 7);
  write_dataset(set("a"), ElementType::kUint16, tokens);
  const auto losses = [&](const std::string& flags, int count = 1) {
    const ProgramResult run = train(
        " --num-layers 3 --data-path " + set("a") + " --loss-log " + scratch_.path("log") + flags, count);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    const std::vector<double> found = read_losses(scratch_.path("log"));
    EXPECT_EQ(found.size(), 5U);
    return found;
  };
  const std::string reset = " --reset-position-ids --reset-attention-mask";
  const std::vector<double> one = losses(reset + " --micro-batch-size 6");
  EXPECT_NE(losses(" --micro-batch-size 6"), one);
  EXPECT_NE(losses(" --reset-position-ids --micro-batch-size 6"), one);
  const std::vector<double> three =
      losses(reset + " --micro-batch-size 2 --pipeline-model-parallel-size 3 --global-batch-size 6", 3);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(three.at(i), one.at(i), 1e-5 * one[i]) << "step " << i;
}

}  // namespace
}  // namespace hdt::training::testing
