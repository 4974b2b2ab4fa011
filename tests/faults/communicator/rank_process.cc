#include "tests/faults/communicator/rank_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace hdt::testing {

RankProcess::RankProcess(const TemporaryFolder& folder, const std::map<std::string, std::string>& environment)
    : process_({HDT_RANK_PROGRAM}, environment, folder.file("ranks.log")) {}

Answer RankProcess::finish(int64_t timeout_ms) {
  const auto line = process_.read_line(Deadline::after_ms(timeout_ms));
  if (!line) return {HDT_IN_PROGRESS, "no answer"};
  const auto space = line->find(' ');
  return {static_cast<hdtResult_t>(std::stoi(line->substr(0, space))), line->substr(space + 1)};
}

Answer RankProcess::call(const std::string& line) {
  start(line);
  return finish();
}

World::World(int nodes, const std::vector<std::vector<std::string>>& flags,
             const std::map<std::string, std::string>& environment) {
  for (int node = 0; node < nodes; ++node) {
    const auto at = static_cast<size_t>(node);
    nodes_.push_back(std::make_unique<NodeProcess>(
        folder_, node, at < flags.size() ? flags[at] : std::vector<std::string>{}, environment));
  }
}

std::unique_ptr<RankProcess> World::rank_on(int number) {
  return std::make_unique<RankProcess>(
      folder_, std::map<std::string, std::string>{{"HDT_SOCKET", node(number).socket()}});
}

std::vector<std::unique_ptr<RankProcess>> World::group(const std::vector<int>& placement, int64_t timeout_ms,
                                                       const std::string& group_class) {
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int node : placement) ranks.push_back(rank_on(node));
  join(ranks, timeout_ms, group_class);
  return ranks;
}

void World::join(std::vector<std::unique_ptr<RankProcess>>& ranks, int64_t timeout_ms,
                 const std::string& group_class) {
  const Answer id = ranks.front()->call("id");
  EXPECT_EQ(id.result, HDT_SUCCESS) << id.text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->start("join " + std::to_string(ranks.size()) + " " + std::to_string(rank) + " " +
                       std::to_string(kAnswerMs) + " " + id.text + " " + group_class);
  }
  for (auto& rank : ranks) {
    const Answer joined = rank->finish();
    EXPECT_EQ(joined.result, HDT_SUCCESS) << joined.text;
  }
  if (timeout_ms == kAnswerMs) return;
  for (auto& rank : ranks) EXPECT_EQ(rank->call("timeout " + std::to_string(timeout_ms)).result, HDT_SUCCESS);
}

void World::await_group(int number, const std::function<bool(const nlohmann::json&)>& is_so,
                        const std::string& what) {
  const std::vector<std::string> command = {HDT_HDTCTL, "--socket", node(number).socket(), "status",
                                            "--json"};
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  while (!deadline.expired()) {
    const auto status = nlohmann::json::parse(run_program(command).output, nullptr, false);
    const auto groups =
        status.is_object() ? status.value("groups", nlohmann::json::array()) : nlohmann::json();
    if (groups.size() == 1 && is_so(groups[0])) return;
  }
  FAIL() << "node " << number << ": " << what;
}

void World::await_entered(int node, size_t local, uint64_t calls) {
  await_group(
      node,
      [=](const auto& group) { return group["local"].at(local)["calls"].template get<uint64_t>() >= calls; },
      "local rank " + std::to_string(local) + " has not entered " + std::to_string(calls) + " calls");
}

void World::await_ready(int node) {
  await_group(
      node, [](const auto& group) { return group["state"] == "ready"; }, "the group is not ready");
}

void World::await_joins(int number, size_t missing) {
  const std::vector<std::string> command = {HDT_HDTCTL, "--socket", node(number).socket(), "why", "--json"};
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  std::string said;
  while (!deadline.expired()) {
    said = run_program(command).output;
    const auto answer = nlohmann::json::parse(said, nullptr, false);
    const auto making = answer.is_object() ? answer.value("making", nlohmann::json::array()) : answer;
    if (making.size() == 1 && making[0]["missing"].size() == missing) return;
  }
  FAIL() << "node " << number << ": not all but " << missing << " ranks have joined: " << said;
}

void World::kill_daemon(int number) {
  node(number).process().signal(SIGKILL);
  ASSERT_TRUE(node(number).process().wait(Deadline::after_ms(kAnswerMs)).has_value());
}

void World::expect_serving() {
  std::vector<int> placement;
  for (size_t node = 0; node < nodes_.size(); ++node)
    placement.insert(placement.end(), 2, static_cast<int>(node));
  auto ranks = group(placement);
  for (auto& rank : ranks) rank->start("allreduce 70000 4 0");
  for (auto& rank : ranks) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
  }
}

}  // namespace hdt::testing
