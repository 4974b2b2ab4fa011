// time_test.cc: what a run shows of its time: shares, the slowest rank, memory, the summary at the end.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "tests/training/percentages.h"
#include "tests/training/train_command/small_run.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTwoStages = " --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8";

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The first group of the first match; "" if there is none.
std::string found_in(const std::string& text, const std::string& expression) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(expression)) ? found[1].str() : "";
}

std::string without_commas(std::string text) {
  std::erase(text, ',');
  return text;
}

class TrainTime : public ::testing::Test {
 protected:
  ScratchDirectory scratch_;
  std::string log_ = scratch_.path("log");
};

TEST_F(TrainTime, IsInTheLogInTheLineAndInTheSummary) {
  const ProgramResult run = train(kText + kTwoStages + " --log-interval 1 --loss-log " + log_, 2);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  const std::vector<nlohmann::json> lines = lines_of(log_);
  ASSERT_EQ(lines.size(), 5U);
  double tokens = 0;
  double counted_tokens = 0;
  double counted_seconds = 0;
  for (size_t step = 0; step < lines.size(); ++step) {
    const nlohmann::json& line = lines[step];
    double sum = 0;
    for (const char* part : {"compute", "pp", "dp", "optimizer", "other"}) {
      const double share = line.at(part + std::string("_share"));
      EXPECT_GE(share, 0) << line;
      EXPECT_LE(share, 1) << line;
      sum += share;
    }
    EXPECT_NEAR(sum, 1, 1e-9) << line;
    EXPECT_GT(line.at("compute_share"), 0) << line;
    EXPECT_GT(line.at("pp_share"), 0) << line;
    EXPECT_GE(line.at("slowest_factor"), 1) << line;
    EXPECT_GT(line.at("peak_memory_bytes"), 1 << 20) << line;
    tokens += line.at("tokens").get<double>();
    if (step == 0) continue;
    counted_tokens += line.at("tokens").get<double>();
    counted_seconds += line.at("seconds").get<double>();
  }
  const std::string in_line = found_in(run.output, R"(step 3/5 \|.*\| (compute [^|]*other \d+ %))");
  EXPECT_EQ(sum_of_percentages(in_line), 100) << run.output;
  const std::string in_summary = found_in(run.output, R"(time of all ranks: (compute .*))");
  EXPECT_EQ(sum_of_percentages(in_summary), 100) << run.output;
  EXPECT_EQ(found_in(run.output, R"(summary: (\d+) steps)"), "5");
  EXPECT_EQ(without_commas(found_in(run.output, R"(summary: 5 steps, ([\d,]+) tokens)")),
            std::to_string(std::lround(tokens)));
  const std::string rate =
      without_commas(found_in(run.output, R"(; ([\d,]+) tokens/s after the first step)"));
  ASSERT_NE(rate, "") << run.output;
  EXPECT_NEAR(std::stod(rate), counted_tokens / counted_seconds, 1);
  const std::string memory = found_in(run.output, R"(peak memory: ([\d.]+) MiB, on rank)");
  ASSERT_NE(memory, "") << run.output;
  EXPECT_NEAR(std::stod(memory), lines.back().at("peak_memory_bytes").get<double>() / (1 << 20), 0.1);
  EXPECT_THAT(run.output, Not(HasSubstr("checkpoints: training waited")));
}

// The wait of a slowed rank follows its processor time, so it is slower on a busy machine, too.
TEST_F(TrainTime, ARankThatIsSlowedDownIsNamed) {
  const ProgramResult run =
      train(kText + kTwoStages + " --slow-down 1 1 1 20 --log-interval 1 --loss-log " + log_, 2);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("| slowest rank 1 (replica 0, stage 1): "),
                                HasSubstr("slowest: rank 1 (replica 0, stage 1) computes ")));
  for (const nlohmann::json& line : lines_of(log_)) EXPECT_EQ(line.at("slowest_rank"), 1) << line;
}

TEST_F(TrainTime, OneProcessHasNoSlowestRankAndSaysHowLongItsCheckpointsTook) {
  const ProgramResult run = train(kText + " --micro-batch-size 2 --loss-log " + log_ + " --save " +
                                  scratch_.path("save") + " --save-interval 2");
  ASSERT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(Not(HasSubstr("slowest")), HasSubstr("checkpoints: training waited ")));
  for (const nlohmann::json& line : lines_of(log_)) {
    EXPECT_FALSE(line.contains("slowest_rank")) << line;
    EXPECT_EQ(line.at("pp_share"), 0) << line;
  }
}

// The files of a profile of the small model on two devices of this machine, and a plan for both.
class TrainAcceleration : public TrainTime {
 protected:
  static void SetUpTestSuite() {
    measured_ = new ScratchDirectory;
    const ProgramResult measured = train(" --profile " + measured_->path("lab") +
                                             " --profile-device fast slow:2 --profile-micro-batch-sizes 1 2",
                                         2);
    EXPECT_EQ(measured.exit_status, 0) << measured.output;
  }
  static void TearDownTestSuite() { delete measured_; }

  TrainAcceleration() {
    std::filesystem::copy(measured_->path("lab"), folder_);
    write("cluster.toml", node("one", "fast") + node("two", "slow"));
    write_plan("1f1b", 3, "1", "1");
  }
  void write_plan(const std::string& schedule, int micro_batches, const std::string& first,
                  const std::string& second) const {
    write("plan.toml",
          "schedule = \"" + schedule + "\"\n[[replica]]\nmicro_batch_size = 2\nmicro_batches = " +
              std::to_string(micro_batches) + "\n  [[replica.stage]]\n  layers = " + first +
              "\n  node = \"one\"\n  [[replica.stage]]\n  layers = " + second + "\n  node = \"two\"\n");
  }
  static std::string node(const std::string& name, const std::string& device) {
    return "[[node]]\nname = \"" + name + "\"\ndevice = \"" + device +
           "\"\ndevices = 1\nmemory_bytes = 1073741824\n";
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }

  // No object with a destructor: copies of this process end, too.
  static inline ScratchDirectory* measured_ = nullptr;
  const std::string folder_ = scratch_.path("lab");
  const std::string plan_ = " --plan " + folder_ + "/plan.toml";
  const std::string profile_ = " --acceleration-profile " + folder_ + "/profile.toml";
};

TEST_F(TrainAcceleration, IsMeasuredThroughputByWhatTheDevicesReachAlone) {
  const ProgramResult run = train(kText + plan_ + profile_ + " --loss-log " + log_, 2);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      run.output, found,
      std::regex(R"(acceleration ratio: ([\d.]+) % = ([\d.e+]+) samples/s measured / ([\d.e+]+) samples/s)")))
      << run.output;
  const double measured = std::stod(found[2]);
  const double alone = std::stod(found[3]);
  EXPECT_NEAR(std::stod(found[1]), 100 * measured / alone, 0.01 + 1e-4 * measured / alone);
  double seconds = 0;
  const std::vector<nlohmann::json> lines = lines_of(log_);
  ASSERT_EQ(lines.size(), 5U);
  for (size_t step = 1; step < lines.size(); ++step) seconds += lines[step].at("seconds").get<double>();
  EXPECT_NEAR(measured, 4 * 6 / seconds, 1e-4 * measured);
  const double fast = std::stod(found_in(run.output, R"(one: 1 x fast alone: ([\d.e+]+) samples/s)"));
  const double slow = std::stod(found_in(run.output, R"(two: 1 x slow alone: ([\d.e+]+) samples/s)"));
  EXPECT_NEAR(alone, fast + slow, 1e-4 * alone);
  for (const char* rank : {"rank 0: computes ", "rank 1: computes "})
    EXPECT_THAT(run.output, HasSubstr(rank));
  // Without a profile the run says that it lacks one.
  const ProgramResult without = train(kText + plan_, 2);
  EXPECT_THAT(without.output, HasSubstr("acceleration ratio: not known without --plan"));
}

// With chunks a device has as much to compute by its profile as with the same units in one piece.
TEST_F(TrainAcceleration, OfARankIsThatOfAllItsChunks) {
  const auto profiled = [&](const std::string& schedule, const std::string& first,
                            const std::string& second) {
    write_plan(schedule, 4, first, second);
    const ProgramResult run = train(kText + plan_ + profile_, 2);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    std::vector<std::string> seconds;
    for (const char* rank : {"0", "1"})
      seconds.push_back(found_in(
          run.output,
          std::string("rank ") + rank + R"(: computes [\d.e-]+ s a step, the profile says ([\d.e-]+) s)"));
    EXPECT_THAT(seconds, ::testing::Each(Not(std::string())));
    return seconds;
  };
  EXPECT_EQ(profiled("interleaved", "[0, 1]", "[1, 0]"), profiled("1f1b", "1", "1"));
}

TEST_F(TrainAcceleration, OfAnotherModelOrOtherDevicesIsRefusedBeforeTheFirstStep) {
  const auto expect_no_step = [&](const std::string& flags, const std::string& text) {
    const ProgramResult run = train(kText + flags, 2);
    EXPECT_NE(run.exit_status, 0) << run.output;
    EXPECT_THAT(run.output, AllOf(HasSubstr(text), Not(HasSubstr("step 1/"))));
  };
  expect_no_step(plan_ + profile_ + " --hidden-size 32", "it is of another model");
  expect_no_step(plan_ + profile_ + " --seq-length 16", "it is of another model");
  expect_no_step(plan_ + profile_ + " --bf16", "in bf16 with gradients in fp32");
  write("cluster.toml", node("one", "fast") + node("two", "other"));
  expect_no_step(plan_ + profile_, "--acceleration-profile: ");
  expect_refused(train(kText + profile_), 2, "--acceleration-profile: expected --plan");
  expect_refused(train(kText + plan_ + " --acceleration-model x"), 2, "expected --acceleration-profile");
}

}  // namespace
}  // namespace hdt::training::testing
