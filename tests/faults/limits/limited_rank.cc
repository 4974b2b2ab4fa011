#include "tests/faults/limits/limited_rank.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

namespace hdt::testing {

LimitedRank::LimitedRank(const TemporaryFolder& folder, const std::map<std::string, std::string>& environment)
    : process_({HDT_LIMIT_PROGRAM}, environment, folder.file("ranks.log")) {}

Told LimitedRank::finish(int64_t timeout_ms) {
  const auto line = process_.read_line(Deadline::after_ms(timeout_ms));
  if (!line) return {HDT_IN_PROGRESS, "no answer: " + process_.errors()};
  const auto space = line->find(' ');
  return {static_cast<hdtResult_t>(std::stoi(line->substr(0, space))), line->substr(space + 1)};
}

Told LimitedRank::call(const std::string& line) {
  start(line);
  return finish();
}

LimitedWorld::LimitedWorld() {
  ::chmod(folder_.path().c_str(), 0755);  // ranks may become other users
  for (int node = 0; node < 2; ++node) nodes_.push_back(std::make_unique<NodeProcess>(folder_, node));
}

LimitedWorld::Ranks LimitedWorld::job(const std::vector<int>& placement) {
  Ranks ranks;
  const std::string meeting = "127.0.1.1:" + std::to_string(18'100 + ++jobs_);
  for (size_t rank = 0; rank < placement.size(); ++rank) {
    ranks.push_back(std::make_unique<LimitedRank>(
        folder_, std::map<std::string, std::string>{{"HDT_SOCKET", node(placement[rank]).socket()},
                                                    {"HDT_RANK", std::to_string(rank)},
                                                    {"HDT_SIZE", std::to_string(placement.size())},
                                                    {"HDT_RENDEZVOUS", meeting},
                                                    {"HDT_TIMEOUT_MS", "30000"}}));
  }
  return ranks;
}

LimitedWorld::Ranks LimitedWorld::joined(const std::vector<int>& placement) {
  Ranks ranks = job(placement);
  expect_all(ranks, "init");
  return ranks;
}

std::unique_ptr<LimitedRank> LimitedWorld::alone(int number) {
  return std::make_unique<LimitedRank>(
      folder_, std::map<std::string, std::string>{{"HDT_SOCKET", node(number).socket()}});
}

nlohmann::json LimitedWorld::status(int number) {
  const ProgramRun run = run_program({HDT_HDTCTL, "--socket", node(number).socket(), "status", "--json"});
  EXPECT_EQ(run.status, 0) << run.errors;
  return nlohmann::json::parse(run.output, nullptr, false);
}

void LimitedWorld::expect_groups(int number, size_t groups) {
  const Deadline deadline = Deadline::after_ms(kSoonMs);
  size_t seen = groups + 1;
  while (seen != groups && !deadline.expired()) seen = status(number)["groups"].size();
  EXPECT_EQ(seen, groups) << "of node " << number;
}

void expect_all(LimitedWorld::Ranks& ranks, const std::string& call) {
  for (auto& rank : ranks) rank->start(call);
  for (auto& rank : ranks) {
    const Told told = rank->finish();
    EXPECT_EQ(told.result, HDT_SUCCESS) << call << ": " << told.text;
  }
}

size_t open_descriptors(pid_t pid) {
  const std::filesystem::directory_iterator fds("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

namespace {

std::set<std::string> descriptors(pid_t pid) {
  std::set<std::string> names;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
    names.insert(fd.path().filename());
  return names;
}

// The connections over which the last group was made are closed a moment after it.
void wait_until_nothing_closes(pid_t pid) {
  constexpr int64_t kQuietMs = 100;
  const Deadline deadline = Deadline::after_ms(kSoonMs);
  std::set<std::string> seen = descriptors(pid);
  for (Deadline quiet = Deadline::after_ms(kQuietMs); !quiet.expired() && !deadline.expired();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::set<std::string> now = descriptors(pid);
    if (now != seen) quiet = Deadline::after_ms(kQuietMs);
    seen = std::move(now);
  }
}

}  // namespace

rlim_t next_descriptor(pid_t pid, size_t n) {
  wait_until_nothing_closes(pid);
  rlim_t number = 0;
  for (;; ++number) {
    const bool used =
        std::filesystem::is_symlink("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number));
    if (!used && n-- == 0) return number;
  }
}

int64_t times_awake(pid_t pid) {
  int64_t sum = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      const std::string name = "voluntary_ctxt_switches:";
      if (line.starts_with(name)) sum += std::stoll(line.substr(name.size()));
    }
  }
  return sum;
}

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

}  // namespace hdt::testing
