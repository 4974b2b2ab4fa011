// daemon_program_test.cc: hdtcommd and hdtctl as programs: wrong usage, idleness, status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

TEST(WrongUsage, OfHdtcommdIsOneLineThatNamesTheFlag) {
  TemporaryFolder folder;
  std::ofstream(folder.file("bad.toml")) << "[nics]\nport = \"many\"\n";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--nics.port", "70000"}, "nics.port"},
      {{"--nics.addresses", "nowhere"}, "nics.addresses"},
      {{"--node.socket", "relative.sock"}, "node.socket"},
      {{"--no.such", "1"}, "no.such"},
      {{"--config", folder.file("absent.toml")}, "absent.toml"},
      {{"--config", folder.file("bad.toml")}, "port"},
      {{"--nics.addresses", "127.0.1.1", "--nics.port", "0", "--node.socket", folder.file("s"),
        "--security.cluster_key_file", folder.file("absent.key")},
       "security.cluster_key_file"},
  };
  for (const auto& [flags, words] : cases) {
    std::vector<std::string> command = {NodeProcess::program()};
    command.insert(command.end(), flags.begin(), flags.end());
    const ProgramRun done = run_program(command);
    EXPECT_EQ(done.status, 2) << flags[0] << ": " << done.errors;
    EXPECT_THAT(done.errors, HasSubstr(words));
    EXPECT_EQ(std::count(done.errors.begin(), done.errors.end(), '\n'), 1) << done.errors;
  }
}

TEST(WrongUsage, OfEnvironmentVariables) {
  World world(1);
  const auto refused = [&](const std::string& name, const std::string& value, const std::string& words) {
    RankProcess rank(world.folder(), {{"HDT_SOCKET", world.node(0).socket()}, {name, value}});
    const Answer answer = rank.call("init");
    EXPECT_EQ(answer.result, HDT_ERR_CONFIG) << name << ": " << answer.text;
    EXPECT_THAT(answer.text, HasSubstr(words));
  };
  refused("HDT_TIMEOUT_MS", "soon", "HDT_TIMEOUT_MS");
  refused("HDT_RANK", "first", "HDT_RANK");
  refused("HDT_RANK", "0", "HDT_SIZE");
}

// How often the threads of a process went to sleep of themselves: that often they had been awake.
int64_t times_awake(pid_t pid) {
  int64_t sum = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(thread.path() / "status");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    const std::string name = "\nvoluntary_ctxt_switches:";
    const size_t at = text.find(name);
    if (at == std::string::npos) return -1;
    sum += std::stoll(text.substr(at + name.size()));
  }
  return sum;
}

// By ticks: whoever has the processor when the clock ticks is counted for all of the tick.
int64_t processor_ms(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  int64_t user = -1;
  int64_t system = -1;
  fields >> user >> system;
  return (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
}

// Few wake-ups, which are counted exactly, and no spinning, which has none. (bench/compare measures the
// processor time.)
TEST(Idle, DaemonWithEightSessionsSleeps) {
  World world(2);
  auto ranks = world.group({0, 0, 0, 0, 0, 0, 0, 0, 1});
  for (auto& rank : ranks) rank->start("barrier");
  for (auto& rank : ranks) ASSERT_EQ(rank->finish().result, HDT_SUCCESS);
  const pid_t daemon = world.node(0).process().pid();
  const int64_t awake = times_awake(daemon);
  const int64_t used_ms = processor_ms(daemon);
  ASSERT_GE(awake, 1);
  ASSERT_GE(used_ms, 0);
  std::this_thread::sleep_for(std::chrono::seconds(2));  // the time over which it is counted
  EXPECT_LE(times_awake(daemon) - awake, 40);
  EXPECT_LE(processor_ms(daemon) - used_ms, 200);
}

TEST(Status, TellsWhatHasHappened) {
  World world(2);
  auto ranks = world.group({0, 0, 1});
  for (auto& rank : ranks) rank->start("allreduce 1000000 4 0");
  for (auto& rank : ranks) ASSERT_EQ(rank->finish().result, HDT_SUCCESS);
  const ProgramRun done = run_program({HDT_HDTCTL, "--socket", world.node(0).socket(), "status", "--json"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto status = nlohmann::json::parse(done.output, nullptr, false);
  ASSERT_TRUE(status.is_object()) << done.output;
  EXPECT_EQ(status["node"], "n0");
  EXPECT_EQ(status["pid"], world.node(0).process().pid());
  EXPECT_EQ(status["sessions"].size(), 3U);  // two ranks and hdtctl
  ASSERT_EQ(status["groups"].size(), 1U);
  const auto& group = status["groups"][0];
  EXPECT_EQ(group["ranks"], 3);
  EXPECT_EQ(group["state"], "ready");
  EXPECT_EQ(group["nodes"].size(), 2U);
  ASSERT_EQ(group["local"].size(), 2U);
  EXPECT_EQ(group["local"][0]["calls"], 1);
  EXPECT_EQ(group["local"][1]["pid"], ranks[1]->process().pid());
  ASSERT_EQ(status["peers"].size(), 1U);
  EXPECT_EQ(status["peers"][0]["node"], "n1");
  EXPECT_EQ(status["peers"][0]["state"], "up");
  ASSERT_EQ(status["peers"][0]["rails"].size(), 1U);
  const auto& rail = status["peers"][0]["rails"][0];
  EXPECT_GT(rail["bytes_out"].get<uint64_t>(), 3'000'000U);  // at least one way of the data
  EXPECT_GT(rail["bytes_in"].get<uint64_t>(), 3'000'000U);
  const ProgramRun table = run_program({HDT_HDTCTL, "status", "--socket", world.node(0).socket()});
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.output, HasSubstr("node n1 over tcp: up"));
}

TEST(Status, WrongUsageOfHdtctl) {
  EXPECT_EQ(run_program({HDT_HDTCTL}).status, 2);
  EXPECT_EQ(run_program({HDT_HDTCTL, "status", "--nothing"}).status, 2);
  const ProgramRun absent = run_program({HDT_HDTCTL, "--socket", "/nonexistent/hdt.sock", "status"});
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.errors, HasSubstr("/nonexistent/hdt.sock"));
}

}  // namespace
}  // namespace hdt::testing
