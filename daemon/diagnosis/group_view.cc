// group_view.cc: puts the reports of nodes together, and searches them for a circle of processes that
// wait for each other. See group_view.h.
#include "daemon/diagnosis/group_view.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

namespace hdt::daemon {

using ipc::Operation;

// The larger of two counts: that of the rank's state and that of the recorder.
uint64_t MemberView::calls() const {
  if (facts == nullptr) return 0;
  // The rank's state counts calls that are published. The recorder may already have one that waits for its
  // turn; its number is counted from 0.
  uint64_t calls = facts->calls;
  for (const Operation& operation : facts->operations) {
    if (!operation.is_message()) calls = std::max(calls, saturating_add(operation.sequence, uint64_t{1}));
  }
  return calls;
}

// The oldest collective call that has not ended; messages are looked at by unmatched().
const Operation* MemberView::current() const {
  const Operation* oldest = nullptr;
  if (facts == nullptr) return oldest;
  for (const Operation& operation : facts->operations) {
    if (operation.is_message() || operation.ended_ns != 0) continue;
    if (oldest == nullptr || operation.sequence < oldest->sequence) oldest = &operation;
  }
  return oldest;
}

// If several ended at the same time, it is the last one in the list, which is the newest.
const Operation* MemberView::last() const {
  const Operation* last = nullptr;
  if (facts == nullptr) return last;
  for (const Operation& operation : facts->operations) {
    if (operation.ended_ns != 0 && (last == nullptr || operation.ended_ns >= last->ended_ns))
      last = &operation;
  }
  return last;
}

// 1. Each node's report of a group names all ranks and their nodes, and describes its own ranks. 2. Nodes
//    that did not answer are assigned to their groups.
std::map<std::string, GroupView> views_of(const std::vector<NodeFacts>& facts) {
  std::map<std::string, GroupView> views;
  for (const NodeFacts& node : facts) {
    for (const GroupFacts& group : node.groups) {
      GroupView& view = views[group.id];
      // The first report counts, unless a later one knows that the group has failed.
      const bool tells_failure = view.facts != nullptr && view.facts->code == 0 && group.code != 0;
      if (view.facts == nullptr || tells_failure) view.facts = &group;
      for (const GroupNodeFacts& place : group.nodes) {
        for (const uint32_t rank : place.ranks) view.members[rank].node = place.name;
      }
      for (const RankFacts& rank : group.local) {
        // A node cannot report a rank that the group does not have.
        const auto member = view.members.find(rank.rank);
        if (member == view.members.end()) continue;
        member->second.told_by = &node;
        member->second.facts = &rank;
      }
    }
  }
  for (auto& [id, view] : views) {
    for (const NodeFacts& node : facts) {
      const auto& places = view.facts->nodes;
      // Compared by address, not by name, as a silent node has no name of its own; another daemon may
      // answer at another address after a restart.
      const auto is_this = [&](const GroupNodeFacts& place) { return place.control == node.control; };
      if (!node.answered && std::any_of(places.begin(), places.end(), is_this)) view.silent.push_back(&node);
    }
  }
  return views;
}

// Messages under way whose other side has not begun its part, with the rank of the other side. A rank of
// which nothing is known is left out: nothing can be said about it.
std::vector<std::pair<const Operation*, uint32_t>> unmatched(const GroupView& group, uint32_t me) {
  std::vector<std::pair<const Operation*, uint32_t>> found;
  const MemberView& member = group.members.at(me);
  if (member.facts == nullptr) return found;
  for (const Operation& mine : member.facts->operations) {
    if (!mine.is_message() || mine.ended_ns != 0 || mine.peer == me) continue;
    const auto other = group.members.find(static_cast<uint32_t>(mine.peer));
    if (other == group.members.end() || other->second.facts == nullptr) continue;
    const auto& theirs = other->second.facts->operations;
    // Messages between two ranks are counted in each direction. The other side has met message n if it
    // has begun its n-th counterpart, or a later one: earlier ones may have been dropped from the report.
    const bool met = std::any_of(theirs.begin(), theirs.end(), [&](const Operation& operation) {
      return operation.peer == me && operation.kind != mine.kind && operation.sequence >= mine.sequence;
    });
    if (!met) found.emplace_back(&mine, other->first);
  }
  return found;
}

namespace {

// A process: its node and pid. If the pid is not known the rank in the group is the third part, as such
// ranks may be one process or several.
using Process = std::tuple<std::string, uint32_t, std::string>;

// The process of a rank. Ranks of different groups with the same pid on a node are one process: this is
// what connects groups.
Process process_of(const GroupView& group, uint32_t rank, const MemberView& member) {
  const uint32_t pid = member.facts->pid;
  return {member.node, pid, pid != 0 ? "" : group.facts->id + " " + std::to_string(rank)};
}

// A process waits for the process `to`, because of `wait`.
struct Edge {
  Process to;
  Wait wait;
};

// Processes with an operation under way: only these can be part of a circle, since all others will go on
// by themselves.
std::set<Process> waiting(const std::map<std::string, GroupView>& groups) {
  std::set<Process> found;
  for (const auto& [id, group] : groups) {
    for (const auto& [rank, member] : group.members) {
      if (member.facts == nullptr) continue;
      const auto& operations = member.facts->operations;
      const bool waits = std::any_of(operations.begin(), operations.end(),
                                     [](const Operation& operation) { return operation.ended_ns == 0; });
      if (waits) found.insert(process_of(group, rank, member));
    }
  }
  return found;
}

// The graph: an edge goes from a process in an operation to each process that has not entered it and is
// itself in another one. Failed groups hold nobody up.
std::map<Process, std::vector<Edge>> waits_of(const std::map<std::string, GroupView>& groups) {
  const std::set<Process> all_waiting = waiting(groups);
  std::map<Process, std::vector<Edge>> edges;
  for (const auto& [id, group] : groups) {
    if (group.facts->code != 0) continue;
    // Adds an edge, unless both ranks are of one process or the other one waits for nothing.
    const auto add = [&, &view = group](uint32_t rank, uint32_t other, const std::string& operation) {
      const MemberView& from = view.members.at(rank);
      const MemberView& to = view.members.at(other);
      if (to.facts == nullptr) return;
      const Process a = process_of(view, rank, from);
      const Process b = process_of(view, other, to);
      if (a != b && all_waiting.contains(b))
        edges[a].push_back({b, {view.facts->name, rank, other, operation}});
    };
    for (const auto& [rank, member] : group.members) {
      if (const Operation* current = member.current()) {
        const std::string text = "call " + std::to_string(current->sequence) + " (" + current->text + ")";
        for (const auto& [other, peer] : group.members) {
          // A rank that has made more calls than the number of this one has entered it.
          if (peer.facts != nullptr && peer.calls() <= current->sequence) add(rank, other, text);
        }
      }
      for (const auto& [operation, other] : unmatched(group, rank)) add(rank, other, operation->text);
    }
  }
  return edges;
}

}  // namespace

// The facts of the nodes are of slightly different moments, so a circle may be seen that has just
// dissolved. Ranks that really wait for each other are still there at the next question.
std::vector<Wait> circle(const std::map<std::string, GroupView>& groups) {
  // Depth-first search for a cycle. `way` is the path from the start, `waits` its edges; `over` holds
  // processes from which no cycle can be reached, so each is visited once. walk() returns the place in
  // `way` where the cycle begins.
  const auto edges = waits_of(groups);
  std::set<Process> over;  // lead to no circle
  std::vector<Process> way;
  std::vector<Wait> waits;
  std::function<std::optional<size_t>(const Process&)> walk =
      [&](const Process& at) -> std::optional<size_t> {
    if (over.contains(at)) return {};
    if (const auto seen = std::find(way.begin(), way.end(), at); seen != way.end()) {
      return static_cast<size_t>(seen - way.begin());
    }
    way.push_back(at);
    if (const auto out = edges.find(at); out != edges.end()) {
      for (const Edge& edge : out->second) {
        waits.push_back(edge.wait);
        if (const auto start = walk(edge.to)) return start;
        waits.pop_back();
      }
    }
    way.pop_back();
    over.insert(at);
    return {};
  };
  for (const auto& [process, out] : edges) {
    if (const auto start = walk(process))
      return {waits.begin() + static_cast<ptrdiff_t>(*start), waits.end()};
  }
  return {};
}

}  // namespace hdt::daemon
