// link_verdict.cc: each node reports the rails that it has to each peer; each end of a link is judged by
// itself, as a rail may work in one direction only. Rails of several classes to the same node are judged
// together, as facts do not say which class a rail belongs to.
#include "daemon/diagnosis/link_verdict.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"

namespace hdt::daemon {

namespace {

// A rail is called slow if it carries less than this part of what the best one carries, both relative to
// their NICs' nominal speeds.
constexpr double kSlowPart = 0.25;

// The rate of a rail relative to its NIC's speed, so that NICs of different speed are all in order.
double score(const RailFacts& rail) {
  const auto rate = static_cast<double>(rail.bytes_per_s);
  return rail.megabits == 0 ? rate : rate / static_cast<double>(rail.megabits);
}

// The rail in words, by NIC if it is known.
std::string name(const RailFacts& rail) {
  return fmt::format("the rail on {} ({} - {})", rail.nic.empty() ? rail.local : rail.nic, rail.local,
                     rail.remote);
}

// Decimal megabytes, as tools for networks have them.
std::string megabytes(const RailFacts& rail) {
  return fmt::format("{:.1f} MB/s", static_cast<double>(rail.bytes_per_s) / 1e6);
}

// Judges the rails of one node to another over one backend: first whether any works, then whether one is
// down, then whether one is slow.
std::optional<LinkTrouble> judge_link(const std::string& from, const std::string& to,
                                      const std::vector<const RailFacts*>& rails) {
  std::vector<const RailFacts*> up;
  for (const RailFacts* rail : rails) {
    if (rail->state == "up") up.push_back(rail);
  }
  const auto error = [](const RailFacts& rail) {
    return rail.last_error.empty() ? "no reason known" : rail.last_error;
  };
  // The error of the first rail stands for all.
  if (up.empty()) {
    return LinkTrouble{Cause::kLinkDown, from,
                       fmt::format("no rail from node {} to node {} works: {}", from, to,
                                   rails.empty() ? "none was made" : error(*rails.front()))};
  }
  for (const RailFacts* rail : rails) {
    if (rail->state != "down") continue;
    return LinkTrouble{Cause::kRailDown, from,
                       fmt::format("{} from node {} to node {} is down ({}); {} other(s) carry its traffic",
                                   name(*rail), from, to, error(*rail), up.size())};
  }
  // Only rails that were measured can be compared, and only if the speeds of both NICs are known, or of
  // none.
  std::erase_if(up, [](const RailFacts* rail) { return rail->bytes_per_s == 0; });
  if (up.size() < 2) return {};
  // Slowest and fastest relative to their NICs.
  const auto [slowest, fastest] = std::minmax_element(
      up.begin(), up.end(), [](const auto* a, const auto* b) { return score(*a) < score(*b); });
  const bool alike = ((*slowest)->megabits == 0) == ((*fastest)->megabits == 0);
  if (!alike || score(**slowest) >= kSlowPart * score(**fastest)) return {};
  return LinkTrouble{Cause::kSlowRail, from,
                     fmt::format("{} from node {} to node {} carries {}, another one {}", name(**slowest),
                                 from, to, megabytes(**slowest), megabytes(**fastest))};
}

}  // namespace

// The worst of all: the order of the causes is that of verdict.h, where a link that is down stands before a
// rail that is down, and that before a slow rail.
std::optional<LinkTrouble> judge_links(const GroupView& group) {
  std::optional<LinkTrouble> worst;
  // The nodes that have reported the group, each once.
  std::set<const NodeFacts*> nodes;
  for (const auto& [rank, member] : group.members) {
    if (member.told_by != nullptr) nodes.insert(member.told_by);
  }
  for (const NodeFacts* node : nodes) {
    for (const GroupFacts& facts : node->groups) {
      if (facts.id != group.facts->id) continue;
      for (const PeerFacts& peer : facts.peers) {
        // By backend: a link uses the rails of one backend, and those of another may lie idle.
        std::map<std::string, std::vector<const RailFacts*>> by_backend;
        for (const RailFacts& rail : node->rails) {
          if (rail.node == peer.node) by_backend[rail.backend].push_back(&rail);
        }
        // No rail at all: the link is down.
        if (by_backend.empty()) by_backend[""];
        for (const auto& [backend, rails] : by_backend) {
          auto trouble = judge_link(node->name, peer.node, rails);
          if (trouble && (!worst || trouble->cause < worst->cause)) worst = std::move(trouble);
        }
      }
    }
  }
  return worst;
}

// Nothing: no node has ever received anything from another one in this group.
std::optional<double> quiet_seconds(const GroupView& group) {
  // The smallest over all nodes: one arrival anywhere is progress of the group.
  std::optional<int64_t> least;
  for (const auto& [rank, member] : group.members) {
    if (member.told_by == nullptr) continue;
    for (const GroupFacts& facts : member.told_by->groups) {
      if (facts.id != group.facts->id) continue;
      for (const PeerFacts& peer : facts.peers) {
        if (peer.quiet_ns >= 0) least = std::min(least.value_or(peer.quiet_ns), peer.quiet_ns);
      }
    }
  }
  if (!least) return {};
  return static_cast<double>(*least) / kNsPerSecond;
}

}  // namespace hdt::daemon
