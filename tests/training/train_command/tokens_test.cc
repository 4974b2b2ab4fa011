// tokens_test.cc: data with tokens that the model does not know, and files that are no datasets.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/training/train_command/datasets.h"
#include "tests/training/train_command/small_run.h"
#include "training/data/token_statistics.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainTokens : public ::testing::Test {
 protected:
  std::string dataset(ElementType type, size_t place, int64_t token) {
    auto tokens = counting_tokens(200'000, 100);
    tokens.at(place) = token;
    write_dataset(prefix_, type, tokens);
    return " --data-path " + prefix_;
  }
  ProgramResult info() const { return run_program(std::string(HDT_DATA) + " info " + prefix_, kTimeLimit); }

  ScratchDirectory scratch_;
  const std::string prefix_ = scratch_.path("set");
};

TEST_F(TrainTokens, NegativeOnesAreNamedWithTheirPlace) {
  expect_refused(train(dataset(ElementType::kInt32, 70'001, -100)), 2,
                 "token -100 at position 70001 of " + prefix_ +
                     ".bin is negative: expected 0 to 256; -100 marks labels");
  EXPECT_THAT(info().output, HasSubstr("the first is token -100 at position 70001"));
  expect_refused(train(dataset(ElementType::kInt64, 0, -5)), 2,
                 "token -5 at position 0 of " + prefix_ + ".bin is negative: expected 0 to 256; make");
  expect_refused(train(dataset(ElementType::kInt8, 199'999, -1)), 2, "token -1 at position 199999 of ");
}

TEST_F(TrainTokens, ThoseBeyondTheVocabularyAreNamedWithTheirPlace) {
  expect_refused(train(dataset(ElementType::kUint16, 3, 300)), 2,
                 "--vocab-size 257: token 300 at position 3 of " + prefix_ +
                     ".bin is beyond it: expected --vocab-size 301 or more");
  // -100 becomes 65436 in an array of uint16.
  expect_refused(train(dataset(ElementType::kUint16, 9, 65436)), 2,
                 "-100, which marks labels that are left out of the loss, is 65436");
  EXPECT_THAT(info().output, AllOf(HasSubstr("0 to 65436"), Not(HasSubstr("negative"))));
  expect_refused(train(kText + " --vocab-size 64"), 2, "/LICENSE is beyond it: expected --vocab-size");
}

// The start looks at 64 blocks of 16,384 tokens. Between the first ones there is one of another vocabulary.
TEST_F(TrainTokens, ThoseThatTheStartDoesNotSeeAreNamedByTheStepThatReadsThem) {
  auto tokens = counting_tokens(4'000'000, 100);
  std::fill(tokens.begin() + 17'000, tokens.begin() + 63'000, 300);
  const TokenStatistics seen = sampled_statistics(MemoryTokens(tokens));
  ASSERT_EQ(seen.counted, kSampledTokens);
  ASSERT_LT(seen.greatest, 300) << "choose another place";
  write_dataset(prefix_, ElementType::kUint16, tokens);
  const std::string flags = " --data-path " + prefix_ + " --micro-batch-size 256 --train-iters 2000";
  const ProgramResult run = train(flags);
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("training ended in step "),
                                HasSubstr(".bin is beyond it: expected --vocab-size 301 or more")));
  const std::string before = ": --vocab-size 257: token 300 at position ";
  const size_t place = run.output.find(before);
  ASSERT_NE(place, std::string::npos) << run.output;
  EXPECT_EQ(tokens.at(std::stoul(run.output.substr(place + before.size()))), 300);
  // Both stages of a pipeline end.
  const ProgramResult two = train(flags + " --pipeline-model-parallel-size 2", 2);
  EXPECT_NE(two.exit_status, 0) << two.output;
  EXPECT_THAT(two.output, HasSubstr("token 300 at position "));
}

TEST_F(TrainTokens, FilesThatAreNoDatasetsAreNamed) {
  const std::string flag = dataset(ElementType::kUint16, 0, 0);
  expect_refused(train(flag + ".bin"), 2, "expected the prefix " + prefix_ + ", without .bin and .idx");
  std::ofstream(prefix_ + ".bin", std::ios::app) << "x";
  expect_refused(train(flag), 2, prefix_ + ".bin has 400001: the two are not of one dataset");
  std::filesystem::resize_file(prefix_ + ".idx", 40);
  expect_refused(train(flag), 2, prefix_ + ".idx: 1 sequences need 12 bytes each, but only 6 follow");
  write_dataset(prefix_, ElementType::kUint16, counting_tokens(5, 5));
  const ProgramResult few = train(flag);
  EXPECT_EQ(few.exit_status, 1);
  EXPECT_THAT(few.output,
              HasSubstr("--data-path " + prefix_ + ": the data holds 5 tokens, expected at least 9"));
  // A pipe that nobody writes to is not waited for.
  ASSERT_EQ(::mkfifo(scratch_.path("pipe").c_str(), 0600), 0);
  expect_refused(train(" --text " + scratch_.path("pipe")), 2, "pipe is not a regular file");
}

TEST_F(TrainTokens, OfOneRankEndAllRanks) {
  const std::string wrong = dataset(ElementType::kInt32, 5, -100);
  const ProgramResult run =
      run_program(ranks(1) + HDT_TRAIN + kSmall + kText + " --micro-batch-size 1 : -np 1 " + HDT_TRAIN +
                      kSmall + wrong + " --micro-batch-size 1",
                  kTimeLimit);
  EXPECT_NE(run.exit_status, 0);
  EXPECT_THAT(run.output, AllOf(HasSubstr("rank 1: token -100 at position 5 of "),
                                HasSubstr("rank 0: training did not begin, because rank 1 is not ready; its "
                                          "own message has the reason")));
}

#ifdef HDT_SPM_TRAIN
// hdt-data encodes for hdt-train: the text, the prompt and what is generated.
TEST_F(TrainTokens, ASentencePieceModelOfAnotherProcess) {
  const std::string model = scratch_.path("m");
  const ProgramResult trained =
      run_program(std::string(HDT_SPM_TRAIN) + " --input=" + HDT_SOURCE_DIR +
                      "/LICENSE --model_prefix=" + model + " --vocab_size=300 --minloglevel=2",
                  kTimeLimit);
  ASSERT_EQ(trained.exit_status, 0) << trained.output;
  for (const char* type : {"SentencePieceTokenizer", "Llama2Tokenizer"}) {
    const ProgramResult run =
        train_as_program(kText + " --tokenizer-type " + type + " --tokenizer-model " + model +
                         ".model --micro-batch-size 2 --sample-tokens 5 --sample-prompt License");
    EXPECT_EQ(run.exit_status, 0) << run.output;
    EXPECT_THAT(run.output, AllOf(HasSubstr("vocabulary 300"), HasSubstr("License")));
  }
  expect_refused(train_as_program(kText + " --tokenizer-type Llama2Tokenizer --tokenizer-model " +
                                  HDT_SOURCE_DIR + "/LICENSE"),
                 2, "/LICENSE: no SentencePiece model");
}
#endif

}  // namespace
}  // namespace hdt::training::testing
