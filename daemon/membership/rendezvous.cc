// rendezvous.cc: see rendezvous.h for the states of a group. A group is erased only when all replies
// about it exist: memory may run out at any allocation, and then the event's connection ends, or
// on_time() comes to the group again (base/contained.h).
#include "daemon/membership/rendezvous.h"

#include <algorithm>
#include <set>

#include "base/hmac.h"
#include "base/join.h"
#include "base/log.h"
#include "base/saturate.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

namespace {

// The number of missing ranks that a message names before it says "and n more".
constexpr size_t kNamedMissing = 16;

// After completion the nodes have to connect to each other, until the deadline that their ranks' Joins
// carried. The coordinator waits this much longer for their reports.
constexpr int64_t kOutcomeGraceMs = 5'000;

// If two jobs of one user start at the same moment at one address, the only sign of it is that one rank
// comes twice. So a group whose ranks meet at an address waits this long before it is made.
constexpr int64_t kSettleMs = 300;

// "\"ring\" on node n0"
std::string configured(const Join& join) {
  const std::string name = join.algorithm ? name_of(*join.algorithm) : "auto";
  return "\"" + name + "\" on node " + join.node.name;
}

// Names a process for an error message.
std::string process(const Join& join) {
  return "pid " + std::to_string(join.pid) + " of user " + std::to_string(join.uid) + " on node " +
         join.node.name;
}

// The error when two processes join as the same rank.
std::string two_jobs(const Join& first, const Join& second) {
  const std::string text = "two processes join as rank " + std::to_string(second.rank) + ": " +
                           process(first) + " and " + process(second);
  if (second.meeting != ipc::Meeting::kAddress) return text;
  return text +
         ". Two jobs meet at the same address: give each another port, or an HDT_JOB_SECRET of its own";
}

// refuse() answers the connections that have joined; the sender of this message may be on a new one.
void answer_sender(std::vector<Rendezvous::Reply>& replies, const Rendezvous::Reply& answer) {
  const auto to_sender = [&](const Rendezvous::Reply& reply) { return reply.to == answer.to; };
  if (std::none_of(replies.begin(), replies.end(), to_sender)) replies.push_back(answer);
}

}  // namespace

// Ranks of one group come in any order, from any number of daemons, and each daemon on a connection of its
// own. The first Join makes the group. Everything that it states is another daemon's word about its
// process.
std::vector<Rendezvous::Reply> Rendezvous::on_join(ChannelId from, const Join& join) {
  // 1. The group has been refused before: this rank is refused at once, or it would wait for the others
  //    until its deadline.
  if (const auto why = refused_.find(join.key, join.process_age_ms)) {
    return {{from, Outcome{join.key, why->code(), -1, why->message()}}};
  }
  if (join.code != Code::kSuccess) return on_declined(from, join);
  if (const auto why = refused_.find_once(join.key, join.rank)) {
    return {{from, Outcome{join.key, why->code(), -1, why->message()}}};
  }
  // 2. The group is complete: this rank is too late, or another one took its place.
  Group& group = groups_[join.key];
  if (group.complete) {
    const std::string late = "rank " + std::to_string(join.rank) + " joins a group that is complete already";
    const Reply refusal{from, Outcome{join.key, Code::kInvalidUsage, static_cast<int32_t>(join.rank), late}};
    if (group.meeting != ipc::Meeting::kAddress) return {refusal};
    // With an address as the key, nothing distinguishes the late rank from a foreign one that was taken
    // for it. So the whole group is refused. (The rank may exceed the size of the group, hence the
    // min().)
    auto replies = refuse(join.key, group, Code::kMismatch, static_cast<int32_t>(join.rank),
                          two_jobs(group.members.at(std::min(join.rank, group.ranks - 1)).join, join));
    replies.push_back(refusal);
    groups_.erase(join.key);
    return replies;
  }
  // 3. The first rank determines what the others must agree with.
  if (group.members.empty()) {
    group.ranks = join.ranks;
    group.meeting = join.meeting;
    group.group_class = join.group_class;
    group.deadline = Deadline::after_ms(join.timeout_ms);
  }
  const auto& [rank, first] = group.members.empty()
                                  ? std::pair<const uint32_t, Member>{join.rank, {from, join}}
                                  : *group.members.begin();
  // 4. Compare with the first member, by rank. The first difference refuses the group for all.
  std::string wrong;
  Code code = Code::kMismatch;
  if (join.ranks != group.ranks) {
    wrong = "rank " + std::to_string(rank) + " joins a group of " + std::to_string(group.ranks) +
            " ranks, rank " + std::to_string(join.rank) + " one of " + std::to_string(join.ranks);
  } else if (join.group_class != group.group_class) {
    wrong = "rank " + std::to_string(rank) + " joins with class " + group.group_class + ", rank " +
            std::to_string(join.rank) + " with class " + join.group_class;
  } else if (join.algorithm != first.join.algorithm) {
    code = Code::kConfig;
    wrong = "class " + group.group_class + " has algorithm " + configured(first.join) + ", but " +
            configured(join) + ": give it the same one on all nodes";
  } else if (group.members.contains(join.rank)) {
    wrong = two_jobs(group.members.at(join.rank).join, join);
  }
  if (!wrong.empty()) {
    auto replies = refuse(join.key, group, code, static_cast<int32_t>(join.rank), wrong);
    answer_sender(replies, {from, Outcome{join.key, code, static_cast<int32_t>(join.rank), wrong}});
    groups_.erase(join.key);
    return replies;
  }
  // 5. The rank is a member. With the last one the group is complete, or settles.
  group.members.emplace(join.rank, Member{from, join});
  group.deadline = Deadline::earlier(group.deadline, Deadline::after_ms(join.timeout_ms));
  if (group.members.size() < group.ranks) return {};
  if (group.meeting != ipc::Meeting::kAddress) return complete(join.key, group);
  group.settled = Deadline::after_ms(kSettleMs);
  return {};
}

// The rank need not be among those who wait: it may be the first one that comes. Then there is no group, and
// the others get the reason when they come. The size and the class in its message do not matter: the rank may
// not know them. A group that is complete has all its ranks, so whoever declines it is none of them.
std::vector<Rendezvous::Reply> Rendezvous::on_declined(ChannelId from, const Join& join) {
  const Status why(join.code, "rank " + std::to_string(join.rank) + " (" + process(join) +
                                  ") cannot take part in the group: " + join.text);
  const Reply answer{from, Outcome{join.key, why.code(), static_cast<int32_t>(join.rank), why.message()}};
  const auto found = groups_.find(join.key);
  if (found != groups_.end() && found->second.complete) return {answer};
  std::vector<Reply> replies;
  std::set<uint32_t> informed = {join.rank};
  if (found != groups_.end()) {
    replies = refuse(join.key, found->second, why.code(), static_cast<int32_t>(join.rank), why.message());
    for (const auto& [rank, member] : found->second.members) informed.insert(rank);
  }
  answer_sender(replies, answer);
  if (join.meeting == ipc::Meeting::kAgain) {
    refused_.remember_once(join.key, why, std::move(informed));
  } else {
    refused_.remember(join.key, why);
  }
  if (found != groups_.end()) groups_.erase(found);
  return replies;
}

// All nodes get the same message, so all compute the same layout, engine and order of ranks from it.
std::vector<Rendezvous::Reply> Rendezvous::complete(const GroupKey& key, Group& group) {
  // Nodes are numbered in the order of their lowest rank, as the map is ordered by rank. Two ranks of a
  // node have the same node id; the connection of the first one stands for the node.
  Membership membership{key, {}, group.group_class, {}, std::vector<uint32_t>(group.ranks)};
  const Status drawn =
      random_bytes({reinterpret_cast<uint8_t*>(membership.secret.data()), membership.secret.size()});
  if (!drawn.is_ok()) {
    auto replies = refuse(key, group, drawn.code(), -1, drawn.message());
    groups_.erase(key);
    return replies;
  }
  // The number of each node by its id.
  std::map<NodeId, uint32_t> index;
  std::vector<ChannelId> channels;
  for (const auto& [rank, member] : group.members) {
    const auto [entry, is_new] =
        index.emplace(member.join.node.id, static_cast<uint32_t>(membership.nodes.size()));
    if (is_new) {
      membership.nodes.push_back(member.join.node);
      channels.push_back(member.channel);
    }
    membership.node_of_rank[rank] = entry->second;
  }
  std::vector<Reply> replies;
  std::map<ChannelId, bool> nodes;
  for (ChannelId channel : channels) {
    nodes.emplace(channel, false);
    replies.push_back({channel, membership});
  }
  // From here on nothing throws: the replies exist, so a group that is complete has been sent to its
  // members.
  group.nodes.swap(nodes);
  group.complete = true;
  group.secret = membership.secret;
  group.settled = Deadline::never();
  group.deadline =
      Deadline::after_ms(saturating_add(group.members.begin()->second.join.timeout_ms, kOutcomeGraceMs));
  return replies;
}

// Makes the replies and remembers the reason for ranks that come later. The group itself is erased by the
// caller, when the replies exist.
std::vector<Rendezvous::Reply> Rendezvous::refuse(const GroupKey& key, const Group& group, Code code,
                                                  int32_t rank, const std::string& why) {
  // One message for each connection, however many ranks joined on it.
  // Several ranks of a node join on one connection of its daemon.
  std::set<ChannelId> channels;
  for (const auto& [number, member] : group.members) channels.insert(member.channel);
  std::vector<Reply> replies;
  replies.reserve(channels.size());
  for (ChannelId channel : channels) replies.push_back({channel, Outcome{key, code, rank, why}});
  // With kAgain the same processes may use the key again, so they must not be refused then.
  if (group.meeting != ipc::Meeting::kAgain) refused_.remember(key, {code, why});
  return replies;
}

// A message about a group counts only if it comes from a connection on which one of its ranks has joined.
bool Rendezvous::has_joined(const Group& group, ChannelId channel) {
  return std::any_of(group.members.begin(), group.members.end(),
                     [channel](const auto& member) { return member.second.channel == channel; });
}

// The sender is a node whose rank has failed or has come twice. The refusal goes to all who have joined, the
// sender included.
std::vector<Rendezvous::Reply> Rendezvous::on_cancel(ChannelId from, const Cancel& cancel) {
  const auto found = groups_.find(cancel.key);
  if (found == groups_.end() || !has_joined(found->second, from)) return {};
  auto replies =
      refuse(cancel.key, found->second, cancel.code, static_cast<int32_t>(cancel.rank), cancel.text);
  groups_.erase(found);
  return replies;
}

// Outcomes count in state 3 only. The first bad one ends the group for all; the last good one ends the
// coordinator's part.
std::vector<Rendezvous::Reply> Rendezvous::on_outcome(ChannelId from, const Outcome& outcome) {
  const auto found = groups_.find(outcome.key);
  if (found == groups_.end() || !found->second.complete || !has_joined(found->second, from)) return {};
  Group& group = found->second;
  std::vector<Reply> replies;
  if (outcome.code != Code::kSuccess) {
    replies = refuse(outcome.key, group, outcome.code, outcome.rank, outcome.text);
    // The node that reports the failure knows it.
    std::erase_if(replies, [from](const Reply& reply) { return reply.to == from; });
  } else {
    if (const auto node = group.nodes.find(from); node != group.nodes.end()) node->second = true;
    if (!std::all_of(group.nodes.begin(), group.nodes.end(), [](const auto& n) { return n.second; }))
      return {};
  }
  groups_.erase(found);
  return replies;
}

// May be called twice for the same connection. The second time finds no group.
std::vector<Rendezvous::Reply> Rendezvous::on_closed(ChannelId channel) {
  std::vector<Reply> replies;
  std::vector<GroupKey> over;
  for (const auto& [key, group] : groups_) {
    const auto member =
        std::find_if(group.members.begin(), group.members.end(),
                     [channel](const auto& entry) { return entry.second.channel == channel; });
    if (member == group.members.end()) continue;
    // A node that has reported success needs the coordinator no more.
    if (const auto node = group.nodes.find(channel); node != group.nodes.end() && node->second) continue;
    auto refused =
        refuse(key, group, Code::kRankLost, static_cast<int32_t>(member->first),
               "node " + member->second.join.node.name + " (rank " + std::to_string(member->first) +
                   ") has failed: its connection ended while the group was made");
    std::erase_if(refused, [channel](const Reply& reply) { return reply.to == channel; });
    replies.insert(replies.end(), refused.begin(), refused.end());
    over.push_back(key);
  }
  erase(over);
  return replies;
}

// Called when all replies of the event exist: if making one throws, the group is still here, and
// on_time() or the next event informs its members.
void Rendezvous::erase(const std::vector<GroupKey>& over) {
  for (const GroupKey& key : over) groups_.erase(key);
}

std::set<uint32_t> Rendezvous::missing_ranks(const Group& group) {
  std::set<uint32_t> missing;
  for (uint32_t rank = 0; rank < group.ranks; ++rank) {
    if (!group.members.contains(rank)) missing.insert(rank);
  }
  return missing;
}

void Rendezvous::remind() {
  for (auto& [key, group] : groups_) {
    if (!group.reminder.expired()) continue;
    const std::set<uint32_t> missing = missing_ranks(group);
    group.reminder = missing.empty() ? Deadline::never() : Deadline::after_ms(kReminderMs);
    if (missing.empty()) continue;
    HDT_LOG_WARN("making a group of {} ranks (class {}): rank {} did not join yet; they have {} s left",
                 group.ranks, group.group_class, join_first(missing, kNamedMissing),
                 group.deadline.remaining_ns() / kNsPerSecond);
  }
}

// First a group that has settled, which is made now; then those whose ranks did not all come in time.
std::vector<Rendezvous::Reply> Rendezvous::on_time() {
  // One group each time, so that an exception for the next one does not lose these replies. next_time()
  // is due at once for the others.
  for (auto& [key, group] : groups_) {
    if (group.settled.expired()) return complete(GroupKey(key), group);
  }
  remind();
  std::vector<Reply> replies;
  std::vector<GroupKey> over;
  for (const auto& [key, group] : groups_) {
    if (!group.deadline.expired()) continue;
    over.push_back(key);
    // Its nodes have deadlines of their own, and have failed the group by now if they had to.
    if (group.complete) continue;
    const std::set<uint32_t> missing = missing_ranks(group);
    const std::string hint =
        group.meeting == ipc::Meeting::kAddress
            ? "; ranks of different users meet at an address only if all have the same HDT_JOB_SECRET"
            : "";
    // The lowest missing rank is named as the one to blame.
    const auto refused = refuse(key, group, Code::kTimeout, static_cast<int32_t>(*missing.begin()),
                                "making a group of " + std::to_string(group.ranks) + " ranks: rank " +
                                    join_first(missing, kNamedMissing) + " did not join in time" + hint);
    replies.insert(replies.end(), refused.begin(), refused.end());
  }
  erase(over);
  return replies;
}

// A time that a group does not have is "never", which is later than any other.
std::optional<Deadline> Rendezvous::next_time() const {
  std::optional<Deadline> next;
  for (const auto& [key, group] : groups_) {
    const Deadline time = Deadline::earlier(Deadline::earlier(group.deadline, group.settled), group.reminder);
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

// For diagnosis, on the node that coordinates: it alone knows which ranks are missing.
std::vector<MakingFacts> Rendezvous::making() const {
  std::vector<MakingFacts> all;
  for (const auto& [key, group] : groups_) {
    MakingFacts& facts = all.emplace_back();
    // Before the secret is drawn, a group is named by its key; the nodes' GroupMaker does the same.
    facts.id = id_text(group_id(group.complete ? group.secret : key));
    facts.group_class = group.group_class;
    facts.coordinates = true;
    facts.ranks = group.ranks;
    facts.complete = group.complete;
    facts.left_ns = group.deadline.is_never() ? -1 : group.deadline.remaining_ns();
    for (const auto& [rank, member] : group.members) {
      facts.joined.push_back({rank, member.join.node.name});
      facts.users.push_back(member.join.uid);
      facts.members.push_back(member.join.node.id);
    }
  }
  return all;
}

}  // namespace hdt::daemon
