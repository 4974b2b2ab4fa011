// making_verdict.cc: see making_verdict.h. Three sentences are possible: all have joined, and these
// connections are missing; these ranks have not joined, as the coordinator reports; or the coordinator
// has not reported, and so these ranks wait for it.
#include "daemon/diagnosis/making_verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/join.h"
#include "daemon/diagnosis/verdict.h"

namespace hdt::daemon {

namespace {

// One report about the group. A node may report twice: as coordinator and as a node whose ranks wait.
struct Told {
  const NodeFacts* node;
  const MakingFacts* facts;
};

// "0, 1 (node a), 4 (node b)"
std::string by_node(const std::vector<MakingRank>& joined) {
  std::map<std::string, std::vector<uint32_t>> nodes;
  for (const MakingRank& rank : joined) nodes[rank.node].push_back(rank.rank);
  return join(nodes, ", ", [](const auto& node) {
    return join_first(node.second, kNamedRanks) + " (node " + node.first + ")";
  });
}

// The noun for so many ranks.
std::string have(size_t count) { return count == 1 ? "rank" : "ranks"; }

// Judges one group by all reports about it, of which there is one at least.
MakingVerdict judge(const std::vector<Told>& told) {
  MakingVerdict verdict;
  const MakingFacts& any = *told.front().facts;
  verdict.group_id = any.id;
  verdict.group_class = any.group_class;
  std::map<uint32_t, std::string> joined;
  const MakingFacts* coordinator = nullptr;
  // a report of ranks that wait for the coordinator, if possible one that could not reach it
  const MakingFacts* waits = nullptr;
  bool complete = false;
  // the earliest time at which somebody gives up
  int64_t left_ns = -1;
  std::string lacks;
  // 1. Combine the reports. The largest number of ranks counts, as it is 0 in a report without ranks.
  for (const auto& [node, facts] : told) {
    verdict.ranks = std::max(verdict.ranks, facts->ranks);
    complete |= facts->complete;
    if (facts->coordinates) coordinator = facts;
    if (!facts->coordinates && !facts->complete && (waits == nullptr || waits->last_error.empty()))
      waits = facts;
    if (facts->left_ns >= 0) left_ns = left_ns < 0 ? facts->left_ns : std::min(left_ns, facts->left_ns);
    for (const MakingRank& rank : facts->joined) joined.emplace(rank.rank, rank.node);
    for (const std::string& lack : facts->lacks)
      lacks += fmt::format("{}node {} {}", lacks.empty() ? "" : "; ", node->name, lack);
  }
  // 2. The sentence, according to how far the group has come.
  for (const auto& [rank, node] : joined) verdict.joined.push_back({rank, node});
  verdict.coordinator_told = coordinator != nullptr;
  std::string text = fmt::format("group {} (class {}) is being made: ",
                                 any.id.substr(any.id.size() > 8 ? any.id.size() - 8 : 0), any.group_class);
  // a) All have joined. Connections are missing, as the engines report.
  if (complete) {
    text += fmt::format("all {} ranks have joined", verdict.ranks);
    text += lacks.empty() ? ", and their nodes are getting ready" : "; " + lacks;
  } else if (coordinator != nullptr) {
    // b) The coordinator knows who is missing. beyond_limits() in facts.cc bounds this loop.
    // From the coordinator's report alone: a rank that waits for it on another node has not joined.
    std::set<uint32_t> here;
    for (const MakingRank& rank : coordinator->joined) here.insert(rank.rank);
    for (uint32_t rank = 0; rank < coordinator->ranks; ++rank) {
      if (!here.contains(rank)) verdict.missing.push_back(rank);
    }
    text += fmt::format("{} {} of {} {} not joined; {} {}", have(verdict.missing.size()),
                        join_first(verdict.missing, kNamedRanks), coordinator->ranks,
                        verdict.missing.size() == 1 ? "has" : "have", by_node(coordinator->joined),
                        coordinator->joined.size() == 1 ? "has" : "have");
    if (waits != nullptr && !waits->last_error.empty())
      text += fmt::format("; the last attempt to reach {} failed: {}", waits->rendezvous, waits->last_error);
  } else {
    // c) The coordinator has not reported: all that is known is who waits for it, and why it cannot be
    // reached.
    text += fmt::format("{} {} of {} {} at the rendezvous {}, which ", have(joined.size()),
                        by_node(verdict.joined), verdict.ranks, joined.size() == 1 ? "waits" : "wait",
                        any.rendezvous);
    text += any.last_error.empty() ? "has not sent which ranks have joined"
                                   : "cannot be reached: " + any.last_error;
  }
  if (left_ns >= 0)
    text += fmt::format("; it is given up in {:.1f} s", static_cast<double>(left_ns) / kNsPerSecond);
  verdict.sentence = text;
  return verdict;
}

}  // namespace

// One verdict for each group, in the order of the ids, so that two questions in a row show the groups in
// the same places.
std::vector<MakingVerdict> judge_making(const std::vector<NodeFacts>& facts) {
  // Reports of the coordinator and of other nodes have the same public name, so they meet here.
  std::map<std::string, std::vector<Told>> groups;
  for (const NodeFacts& node : facts) {
    for (const MakingFacts& making : node.making) groups[making.id].push_back({&node, &making});
  }
  std::vector<MakingVerdict> verdicts;
  for (const auto& [id, told] : groups) verdicts.push_back(judge(told));
  return verdicts;
}

}  // namespace hdt::daemon
