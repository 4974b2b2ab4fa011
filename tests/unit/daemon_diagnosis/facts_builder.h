// facts_builder.h: facts of a group as nodes would tell them, for tests of what is concluded from them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon::testing {

inline constexpr int64_t kNow = 1000 * kNsPerSecond;

inline ipc::Operation call(const std::string& text, uint64_t sequence, double seconds_ago,
                           double ended_ago = -1) {
  ipc::Operation operation;
  operation.kind = text.substr(0, text.find(' '));
  operation.text = text;
  operation.sequence = sequence;
  operation.entered_ns = kNow - static_cast<int64_t>(seconds_ago * 1e9);
  if (ended_ago >= 0) operation.ended_ns = kNow - static_cast<int64_t>(ended_ago * 1e9);
  return operation;
}

inline ipc::Operation message(const std::string& kind, uint32_t peer, uint64_t number, double seconds_ago,
                              double ended_ago = -1) {
  ipc::Operation operation = call(kind + " of 40 bytes", number, seconds_ago, ended_ago);
  operation.kind = kind;
  operation.bytes = 40;
  operation.peer = peer;
  return operation;
}

// Nodes n0, n1, ...; rank r of the group is on node places[r].
class FactsBuilder {
 public:
  explicit FactsBuilder(const std::vector<int>& places) { add_group("00000000000000aa", places); }

  // Another group of the same processes: rank r is process r.
  size_t add_group(const std::string& id, const std::vector<int>& places) {
    places_.push_back(places);
    for (const int place : places) {
      while (facts_.size() <= static_cast<size_t>(place)) {
        NodeFacts& node = facts_.emplace_back();
        node.name = "n" + std::to_string(facts_.size() - 1);
        node.control = node.name + ":1";
        node.now_ns = kNow;
      }
    }
    GroupFacts group;
    group.id = id;
    group.name = "group " + id.substr(8) + " (class c" + std::to_string(places_.size()) + ")";
    group.group_class = "c" + std::to_string(places_.size());
    for (const NodeFacts& node : facts_) group.nodes.push_back({node.name, node.control, {}});
    for (uint32_t rank = 0; rank < places.size(); ++rank) {
      group.nodes[static_cast<size_t>(places[rank])].ranks.push_back(rank);
    }
    for (size_t node = 0; node < facts_.size(); ++node) {
      GroupFacts here = group;
      for (const uint32_t rank : group.nodes[node].ranks) {
        RankFacts& facts = here.local.emplace_back();
        facts.rank = rank;
        facts.pid = 100 + rank;
        facts.process = "S";
      }
      for (size_t peer = 0; peer < facts_.size(); ++peer) {
        if (peer != node) here.peers.push_back({facts_[peer].name, true, 0, 0, -1, 0});
      }
      facts_[node].groups.push_back(here);
    }
    return places_.size() - 1;
  }

  GroupFacts& group_on(size_t node, size_t group = 0) { return facts_[node].groups[group]; }
  RankFacts& rank(uint32_t rank, size_t group = 0) {
    for (RankFacts& facts : group_on(static_cast<size_t>(places_[group][rank]), group).local) {
      if (facts.rank == rank) return facts;
    }
    return group_on(0, group).local.at(rank);
  }
  // The rank has entered `operation`, after all calls before it.
  void enter(uint32_t who, const ipc::Operation& operation, size_t group = 0) {
    RankFacts& facts = rank(who, group);
    facts.operations.push_back(operation);
    if (!operation.is_message()) facts.calls = operation.sequence + 1;
  }
  void fail(Code code, int rank, const std::string& text) {
    for (NodeFacts& node : facts_) {
      node.groups[0].code = static_cast<int>(code);
      node.groups[0].failed_rank = rank;
      node.groups[0].failure = text;
    }
  }
  // The node has not answered.
  void silence(size_t node) {
    facts_[node].groups.clear();
    facts_[node].rails.clear();
    facts_[node].answered = false;
    facts_[node].silence = "no answer within 3000 ms";
  }
  void rail(size_t node, const std::string& to, const std::string& nic, const std::string& state,
            uint64_t rate = 0, uint64_t megabits = 0) {
    facts_[node].rails.push_back({to, "tcp", nic, "10.0.0.1:1", "10.0.0.2:2", state,
                                  state == "down" ? "NIC went down" : "", 0, rate, 0, megabits});
  }
  // A rail that works between any two nodes.
  void connect() {
    for (size_t from = 0; from < facts_.size(); ++from) {
      for (size_t to = 0; to < facts_.size(); ++to) {
        if (to != from) rail(from, facts_[to].name, "eth0", "up");
      }
    }
  }
  NodeFacts& node(size_t number) { return facts_[number]; }
  const std::vector<NodeFacts>& facts() const { return facts_; }

 private:
  std::vector<std::vector<int>> places_;  // by group
  std::vector<NodeFacts> facts_;
};

}  // namespace hdt::daemon::testing
