// tools_test.cc: the other tools: output files are tried before the work, a flag given again counts, what is
// no number is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/integration/communicator/node_process.h"

namespace hdt::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

const std::string kExamples = HDT_SOURCE_DIR "/docs/examples/plan/";

class ToolsTest : public ::testing::Test {
 protected:
  ToolsTest() { std::ofstream(file("file")) << "text"; }
  std::string file(const std::string& name) const { return folder_.file(name); }
  // Below a file, where nobody can make one, root neither.
  std::string nowhere() const { return file("file/x"); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  static ProgramRun run(const Words& words) { return run_program(words, {{"HDT_LOG_LEVEL", "error"}}); }
  static void expect_line(const Words& words, int status, const std::string& text) {
    const ProgramRun done = run(words);
    EXPECT_EQ(done.status, status) << done.output << done.errors;
    EXPECT_THAT(done.errors, HasSubstr(text));
    EXPECT_EQ(std::count(done.errors.begin(), done.errors.end(), '\n'), 1) << done.errors;
    EXPECT_EQ(done.output, "");
  }

  const TemporaryFolder folder_;
};

TEST_F(ToolsTest, CommbenchTriesItsFileBeforeItMeasures) {
  const Words bench = {HDT_COMMBENCH, "allreduce", "--local", "2", "-b", "8",
                       "-e",          "8",         "-n",      "2", "-w", "1"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), bench.begin(), bench.end());
    return more;
  };
  expect_line(with({"--json", nowhere()}), 1, "--json: cannot write '" + nowhere() + "': Not a directory");
  expect_line(with({"--json", file("")}), 1, "--json: cannot write '" + file("") + "': Is a directory");
  expect_line(with({"--json", ""}), 2, "--json: '' given; expected the name of a file");
  expect_line(with({"-n", "nan"}), 2, "-n: 'nan' given; expected a whole number");
  const ProgramRun full = run(with({"--json", "/dev/full"}));
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.errors, HasSubstr("--json: cannot write '/dev/full': No space left on device"));
  EXPECT_EQ(files(), 1U);
  const ProgramRun twice = run(with({"--json", file("a"), "--json", file("b"), "-n", "3"}));
  EXPECT_EQ(twice.status, 0) << twice.errors;
  EXPECT_FALSE(fs::exists(file("a")));
  std::ifstream report(file("b"));
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(report), {}), HasSubstr("\"iterations\": 3"));
}

TEST_F(ToolsTest, PlanTriesItsFilesBeforeItSearches) {
  // The inputs do not exist: the outputs are looked at before.
  const Words search = {HDT_PLAN, "search", "c", "m", "-p", "p", "--global-batch-size", "8"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_line(with(search, {"--output", nowhere()}), 2,
              "--output: cannot create " + nowhere() + ": Not a directory");
  expect_line(with(search, {"--output", ""}), 2, "--output: '' given; expected a name");
  expect_line(with(search, {"--output", file("plan")}), 2, "cannot open p: No such file or directory");
  EXPECT_EQ(files(), 1U);
  const Words predict = {HDT_PLAN, "predict", "plan", "-p", "p", "-c", "c", "-m", "m"};
  expect_line(with(predict, {"--svg", nowhere()}), 2, "--svg: cannot create ");
  expect_line(with(predict, {"--trace", nowhere()}), 2, "--trace: cannot create ");
  for (const char* value : {"nan", "inf", "-1"}) {
    expect_line({HDT_PLAN, "simulate", "c", "r", "--step-seconds", value}, 2,
                std::string("--step-seconds: '") + value + "' given; expected a number from 1e-09 to 1e+12");
    expect_line({HDT_PLAN, "simulate", "c", "r", "--checkpoint-interval", value}, 2,
                std::string("--checkpoint-interval: '") + value + "' given");
  }
  // The last of two counts.
  expect_line({HDT_PLAN, "simulate", "c", "r", "--step-seconds", "5", "--step-seconds", "6"}, 2,
              "cannot open c: No such file or directory");
}

TEST_F(ToolsTest, PlanRefusesNumbersThatAreNoneInItsFiles) {
  const auto damaged = [&](const std::string& example, const std::string& key, const std::string& value) {
    std::ifstream in(kExamples + example);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find(key + " = ");
    EXPECT_NE(at, std::string::npos) << key;
    text.replace(at, text.find('\n', at) - at, key + " = " + value);
    std::ofstream(file(example)) << text;
    return file(example);
  };
  for (const char* value : {"nan", "inf", "-1.0"}) {
    const std::string profile = damaged("llama-8b-profile.toml", "forward", value);
    expect_line({HDT_PLAN, "search", kExamples + "amd-nvidia-cluster.toml", kExamples + "llama-8b-model.toml",
                 "-p", profile, "--global-batch-size", "8"},
                2, profile + ": ");
  }
}

TEST_F(ToolsTest, DataNamesWhatItCannotReadOrWrite) {
  expect_line({HDT_DATA, "make", "--text", file("file"), "--output", nowhere()}, 1,
              "cannot create " + nowhere() + ".bin");
  expect_line({HDT_DATA, "make", "--text", file("file"), "--output", ""}, 2,
              "--output: '' given; expected a name");
  expect_line({HDT_DATA, "make", "--text", "", "--output", file("o")}, 2,
              "--text: '' given; expected a name");
  EXPECT_EQ(files(), 1U);
  // Files add up, the prefix does not.
  const ProgramRun made = run({HDT_DATA, "make", "--text", file("file"), "--text", file("file"), "--output",
                               file("a"), "--output", file("b")});
  EXPECT_EQ(made.status, 0) << made.errors;
  EXPECT_THAT(made.output, HasSubstr(file("b") + ".idx: 2 documents, 10 tokens"));
  EXPECT_EQ(files(), 3U);
  expect_line({HDT_DATA, "info", file("b.idx")}, 1,
              "expected the prefix " + file("b") + ", without .bin and .idx");
}

TEST_F(ToolsTest, HdtctlNamesFilesAndSizes) {
  const TemporaryFolder place;
  const NodeProcess node(place, 0);
  const Words ctl = {HDT_HDTCTL, "--socket", "/no/such/socket", "--socket", node.socket()};
  const auto with = [&](Words more) {
    more.insert(more.begin(), ctl.begin(), ctl.end());
    return more;
  };
  expect_line(with({"trace", "--out", nowhere()}), 1,
              "--out: cannot write '" + nowhere() + "': Not a directory");
  expect_line(with({"trace", "--out", "/dev/full"}), 1,
              "--out: cannot write '/dev/full': No space left on device");
  expect_line(with({"trace", "--out", ""}), 2, "--out: '' given; expected a name");
  expect_line(with({"explain", "allreduce", "-5", "--group", "g"}), 2,
              "SIZE: '-5' given; expected a whole number");
  expect_line(with({"explain", "allreduce", "nan", "--group", "g"}), 2, "SIZE: nan");
  const ProgramRun twice = run(with({"trace", "--out", file("a"), "--out", file("b")}));
  EXPECT_EQ(twice.status, 0) << twice.errors;
  EXPECT_TRUE(fs::exists(file("b")) && !fs::exists(file("a")));
}

TEST_F(ToolsTest, HdtcommdNamesFlagAndValue) {
  expect_line({HDT_HDTCOMMD, "--timeouts.connect_ms", "nan"}, 2,
              "timeouts.connect_ms: expected an integer 1..3600000, found \"nan\"");
  expect_line({HDT_HDTCOMMD, "--node.socket"}, 2, "flag --node.socket: expected a value after it");
  expect_line({HDT_HDTCOMMD, "--config", "/etc/hdt/other.toml", "--config", nowhere()}, 2,
              nowhere() + ": cannot be read");
  const ProgramRun twice = run({HDT_HDTCOMMD, "--nics.port", "1", "--nics.port", "2", "--print-config"});
  EXPECT_EQ(twice.status, 0) << twice.errors;
  EXPECT_THAT(twice.output, AllOf(HasSubstr("port = 2"), Not(HasSubstr("port = 1 "))));
}

}  // namespace
}  // namespace hdt::testing
