// evaluation_test.cc: --split, --eval-interval and --eval-iters, from the flags to the outputs.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/training/train_command/datasets.h"
#include "tests/training/train_command/small_run.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainEvaluation : public ::testing::Test {
 protected:
  // The losses of a part by step, from the log of a run.
  std::map<int, double> losses(const std::string& log, const std::string& part) const {
    std::map<int, double> found;
    std::ifstream file(scratch_.path(log));
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json entry = nlohmann::json::parse(line);
      if (!entry.contains(part + "_loss")) continue;
      found[entry.at("step")] = entry.at(part + "_loss");
      EXPECT_NEAR(entry.at(part + "_perplexity"), std::exp(found[entry.at("step")]), 1e-6);
      EXPECT_GT(entry.at(part + "_tokens"), 0);
    }
    return found;
  }
  std::string log(const std::string& name) const { return " --loss-log " + scratch_.path(name); }

  ScratchDirectory scratch_;
};

const std::string kEvaluates = kText + " --split 90,9,1 --eval-interval 2 --eval-iters 3";

TEST_F(TrainEvaluation, IsTheSameOnEveryLayoutAndShown) {
  const ProgramResult one =
      train(kEvaluates + " --micro-batch-size 6 --tensorboard-dir " + scratch_.path("events") + log("one"));
  ASSERT_EQ(one.exit_status, 0) << one.output;
  EXPECT_THAT(one.output,
              AllOf(HasSubstr("validation at step 2: loss "), HasSubstr("validation at step 5: loss "),
                    HasSubstr("test at step 5: loss "), HasSubstr(", perplexity ")));
  const ProgramResult four =
      train(kEvaluates +
                " --use-tp-pp-dp-mapping --hetero-pipeline-stages 1 2 --hetero-pipeline-stages 2 1 1"
                " --micro-batch-size 1 --num-micro-batches-per-dp 1 2 1 4" +
                log("three"),
            3);
  ASSERT_EQ(four.exit_status, 0) << four.output;
  for (const char* part : {"validation", "test"}) {
    const std::map<int, double> expected = losses("one", part);
    EXPECT_EQ(expected.size(), std::string(part) == "test" ? 1U : 3U);
    const std::map<int, double> found = losses("three", part);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [step, loss] : expected) EXPECT_NEAR(found.at(step), loss, 1e-5 * loss) << part << step;
  }
  const ProgramResult events = run_program("cat " + scratch_.path("events") + "/*", kTimeLimit);
  EXPECT_THAT(events.output, AllOf(HasSubstr("lm loss validation"), HasSubstr("lm loss validation ppl"),
                                   HasSubstr("lm loss test")));
}

// Training must not see what validates: the tokens behind the border are others.
TEST_F(TrainEvaluation, TheValidationPartIsNotTrainedOn) {
  std::vector<int64_t> tokens(1000, 7);
  std::fill(tokens.begin() + 900, tokens.end(), 9);
  write_dataset(scratch_.path("set"), ElementType::kUint16, tokens);
  const ProgramResult run =
      train(" --data-path " + scratch_.path("set") +
            " --split 9,1 --micro-batch-size 2 --train-iters 60 --lr 0.02" + log("log"));
  ASSERT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output, Not(HasSubstr("test at step")));
  const std::map<int, double> found = losses("log", "validation");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_GT(found.at(60), std::log(257.0));  // of tokens that were never seen
}

// Documents stay whole: of three of 400, 300 and 300 tokens, the last one validates.
TEST_F(TrainEvaluation, BordersAreBetweenDocuments) {
  write_documents(scratch_.path("set"),
                  {std::vector<int64_t>(400, 7), std::vector<int64_t>(300, 7), std::vector<int64_t>(300, 9)});
  const ProgramResult run =
      train(" --data-path " + scratch_.path("set") + " --split 6,4 --micro-batch-size 1");
  ASSERT_EQ(run.exit_status, 0) << run.output;
  // A pass over 300 tokens: 37 samples of 8.
  EXPECT_THAT(run.output, HasSubstr("validation at step 5: loss "));
  EXPECT_THAT(run.output, HasSubstr(" 296 tokens"));
}

TEST_F(TrainEvaluation, RefusesWhatCannotBe) {
  expect_refused(train(kText + " --split 0,10"), 2, "--split: '0,10' given, expected a first weight");
  expect_refused(train(kText + " --eval-iters 3"), 2, "expected --split, which sets data aside");
  expect_refused(train(kText + " --split 9,1 --eval-interval 0"), 2, "--eval-interval");
  write_dataset(scratch_.path("set"), ElementType::kUint16, counting_tokens(40, 5));
  const ProgramResult few = train(" --data-path " + scratch_.path("set") + " --split 95,5");
  EXPECT_EQ(few.exit_status, 1);
  EXPECT_THAT(few.output, AllOf(HasSubstr("validation part of --split: the data holds 2 tokens, expected at "
                                          "least 9"),
                                Not(HasSubstr("layout:"))));
}

}  // namespace
}  // namespace hdt::training::testing
