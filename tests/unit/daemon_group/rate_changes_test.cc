// rate_changes_test.cc: nodes that read calls at any pace, lose and get back parts of their links, move to
// links that carry less or more than those that were measured, and are started again at any moment, with
// messages that come in any order. Every call must have the same rates on all nodes, and in the end all have
// the rates of the links as they are.
#include "daemon/group/rate_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "base/clock.h"

namespace hdt::daemon {
namespace {

using Kind = RateChangeMessage::Kind;
using Parts = RateChanges::Parts;

constexpr uint64_t kGroup = 7;
constexpr uint32_t kJournalSlots = 1;

class World;

// A daemon's part of the group: it reads calls, finishes them in order, and remembers the rates of each.
class Node : public RateChanges::Group {
 public:
  Node(World& world, uint32_t me, uint32_t nodes)
      : world_(world),
        me_(me),
        nodes_(nodes),
        memory_(ipc::Journal::bytes(nodes, kJournalSlots) / sizeof(Line) + 1),
        links(nodes, ipc::kWholeLink) {
    start();
  }

  // As a daemon begins, on an empty journal or on that of its predecessor.
  void start() {
    next_call_ = journal().finished().calls;
    told_below_ = 0;
    journal().for_told_calls(next_call_, [&](uint64_t call, const ipc::Call&) { told_below_ = call + 1; });
    changes = std::make_unique<RateChanges>(*this, kGroup, me_, nodes_, journal());
    known_.clear();
    known_.emplace_back(0, Parts(size_t{nodes_} * nodes_, ipc::kWholeLink));
    for (const auto& change : changes->before()) known_.emplace_back(change.call, change.parts);
    for (uint32_t node = 0; node < nodes_; ++node) changes->set_link(node, links[node], 0);
  }

  ipc::Journal journal() { return {memory_.front().bytes, nodes_, kJournalSlots}; }
  // Reads the next call, unless it may not.
  void read() {
    if (next_call_ >= changes->hold() || next_call_ >= first_unfinished() + 8) return;
    const Parts& parts = rates_of(next_call_);
    ipc::Call call{};
    call.count = 1;
    journal().tell_call(next_call_, call);
    used[next_call_].insert(parts);
    ++next_call_;
  }
  void finish() {
    if (first_unfinished() == next_call_) return;
    journal().finish_call(first_unfinished(), 0);
    changes->on_progress();
  }
  uint64_t read_so_far() const { return next_call_; }

  void send(uint32_t node, const RateChangeMessage& note) override;
  uint64_t first_unread() const override { return std::max(next_call_, told_below_); }
  uint64_t first_unfinished() const override { return const_cast<Node*>(this)->journal().finished().calls; }
  void change_rates(uint64_t call, const Parts& parts) override { known_.emplace_back(call, parts); }
  bool is_worth(const Parts&) const override { return true; }
  bool all_open() const override;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const Parts& rates_of(uint64_t call) const {
    const Parts* parts = nullptr;
    for (const auto& [first, rates] : known_) {
      if (call >= first) parts = &rates;
    }
    return *parts;
  }

  World& world_;
  const uint32_t me_;
  const uint32_t nodes_;
  std::vector<Line> memory_;
  uint64_t next_call_ = 0;
  uint64_t told_below_ = 0;
  std::vector<std::pair<uint64_t, Parts>> known_;

 public:
  std::unique_ptr<RateChanges> changes;
  // what they have in truth
  Parts links;
  // by call; a call that was read again by a successor must have had the same
  std::map<uint64_t, std::set<Parts>> used;
  bool up = true;
};

class World {
 public:
  World(uint32_t nodes, uint64_t seed) : random(seed) {
    for (uint32_t node = 0; node < nodes; ++node) all.push_back(std::make_unique<Node>(*this, node, nodes));
  }

  size_t pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); }

  void post(uint32_t from, uint32_t to, const RateChangeMessage& note) {
    if (all.size() > to && all[from] != nullptr && all[from]->up && all[to]->up)
      under_way.push_back({from, to, note});
  }
  // One message, not the oldest one: a group may be on two links.
  void deliver() {
    if (under_way.empty()) return;
    const size_t which = pick(std::min<size_t>(under_way.size(), 4));
    const auto [from, to, note] = under_way[which];
    under_way.erase(under_way.begin() + static_cast<ptrdiff_t>(which));
    ASSERT_EQ(all[to]->changes->on_message(note, now), "");
  }
  void kill(uint32_t node) {
    all[node]->up = false;
    std::erase_if(under_way, [&](const auto& message) { return message.from == node || message.to == node; });
  }
  void revive(uint32_t node) {
    all[node]->up = true;
    all[node]->start();
    for (uint32_t other = 0; other < all.size(); ++other) {
      if (other == node || !all[other]->up) continue;
      all[node]->changes->on_back(other, now);
      all[other]->changes->on_back(node, now);
    }
  }
  void pass(int64_t ns) {
    now += ns;
    if (all[0]->up) all[0]->changes->on_time(now);
  }
  void set_link(uint32_t node, uint32_t other, ipc::LinkPart part) {
    Node& at = *all[node];
    at.links[other] = part;
    if (at.up) at.changes->set_link(other, part, now);
  }
  void change_link() {
    const auto node = static_cast<uint32_t>(pick(all.size()));
    const auto other = static_cast<uint32_t>(pick(all.size()));
    if (node != other) set_link(node, other, static_cast<ipc::LinkPart>(1 + pick(ipc::kWholeLink)));
  }
  // The class gets other NICs: every node's links are others, one end after the other, while the rest goes
  // on. Meanwhile daemons may be killed and started again.
  void move_class() {
    std::vector<ipc::LinkPart> of_node;
    for (size_t node = 0; node < all.size(); ++node)
      of_node.push_back(static_cast<ipc::LinkPart>(1 + pick(ipc::kLargestPart)));
    std::vector<std::pair<uint32_t, uint32_t>> ends;
    for (uint32_t node = 0; node < all.size(); ++node) {
      for (uint32_t other = 0; other < all.size(); ++other) {
        if (node != other) ends.emplace_back(node, other);
      }
    }
    std::shuffle(ends.begin(), ends.end(), random);
    for (const auto& [node, other] : ends) {
      set_link(node, other, of_node[node]);
      for (size_t i = pick(4); i > 0; --i) step(false);
    }
  }
  // `changes_links`: among other things.
  void step(bool changes_links) {
    const auto node = static_cast<uint32_t>(pick(all.size()));
    Node& at = *all[node];
    switch (pick(12)) {
      case 0:
        if (changes_links && pick(8) == 0) {
          move_class();
        } else if (changes_links) {
          change_link();
        }
        break;
      case 1:
        if (pick(6) != 0) break;
        if (at.up) kill(node);
        break;
      case 2:
      case 3:
        if (!at.up) revive(node);
        break;
      case 4:
        pass(static_cast<int64_t>(pick(400)) * kNsPerMs);
        break;
      case 5:
      case 6:
        if (at.up) at.finish();
        break;
      case 7:
      case 8:
        if (at.up) at.read();
        break;
      default:
        deliver();
    }
  }
  // Everybody is there, and nothing happens any more but what was begun.
  void settle() {
    for (uint32_t node = 0; node < all.size(); ++node) {
      if (!all[node]->up) revive(node);
    }
    for (int round = 0; round < 30; ++round) {
      while (!under_way.empty()) deliver();
      for (int i = 0; i < 4; ++i) {
        for (const auto& node : all) node->read(), node->finish();
      }
      // Calls need all nodes, so none is more than a call ring ahead.
      uint64_t most = 0;
      for (const auto& node : all) most = std::max(most, node->read_so_far());
      for (const auto& node : all) {
        for (int i = 0; i < 64 && node->read_so_far() < most; ++i) node->read(), node->finish();
      }
      pass(500 * kNsPerMs);
    }
  }
  Parts truth() const {
    const size_t nodes = all.size();
    Parts parts(nodes * nodes, ipc::kWholeLink);
    for (size_t from = 0; from < nodes; ++from) {
      for (size_t to = 0; to < nodes; ++to)
        parts[from * nodes + to] = std::min(all[from]->links[to], all[to]->links[from]);
    }
    return parts;
  }

  struct Message {
    uint32_t from, to;
    RateChangeMessage note;
  };
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Node>> all;
  std::deque<Message> under_way;
  int64_t now = 1;
};

void Node::send(uint32_t node, const RateChangeMessage& note) { world_.post(me_, node, note); }
bool Node::all_open() const {
  return std::ranges::all_of(world_.all, [](const auto& node) { return node->up; });
}

TEST(RateChanges, EachCallHasTheSameRatesOnAllNodesWhateverHappens) {
  const uint64_t first_seed = std::random_device{}();
  size_t changes = 0;
  for (uint64_t i = 0; i < 600; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + i));
    World world(static_cast<uint32_t>(2 + i % 5), first_seed + i);
    for (int step = 0; step < 1'500; ++step) {
      world.step(true);
      if (::testing::Test::HasFatalFailure()) return;
    }
    world.settle();
    std::map<uint64_t, std::set<Parts>> by_call;
    for (const auto& node : world.all) {
      for (const auto& [call, parts] : node->used) by_call[call].insert(parts.begin(), parts.end());
      ASSERT_EQ(node->changes->hold(), RateChanges::kNoCall);
      ASSERT_EQ(node->changes->parts(), world.truth());
    }
    const Parts* last = nullptr;
    for (const auto& [call, parts] : by_call) {
      ASSERT_EQ(parts.size(), 1U) << "call " << call;
      changes += last != nullptr && *last != *parts.begin();
      last = &*parts.begin();
    }
  }
  EXPECT_GT(changes, 2'000U);
}

TEST(RateChanges, FollowWithinASecondAndThenPause) {
  World world(3, 1);
  for (const auto& node : world.all) node->read();
  world.all[1]->changes->set_link(2, 8, world.now);
  while (!world.under_way.empty()) world.deliver();
  world.pass(299 * kNsPerMs);
  EXPECT_TRUE(world.under_way.empty());
  world.pass(2 * kNsPerMs);
  EXPECT_EQ(world.under_way.size(), 2U);
  while (!world.under_way.empty()) world.deliver();
  for (const auto& node : world.all) EXPECT_EQ(node->changes->parts()[3 + 2], 8);
  for (const auto& node : world.all) node->finish();
  while (!world.under_way.empty()) world.deliver();
  // The next one comes a second after the first, and no earlier.
  world.all[1]->changes->set_link(2, 16, world.now);
  while (!world.under_way.empty()) world.deliver();
  world.pass(600 * kNsPerMs);
  EXPECT_TRUE(world.under_way.empty());
  world.pass(401 * kNsPerMs);
  EXPECT_FALSE(world.under_way.empty());
}

TEST(RateChanges, RefuseWhatNoNodeSends) {
  World world(3, 1);
  const auto said = [&](uint32_t to, uint32_t from, Kind kind, uint64_t number, uint64_t call, Parts parts) {
    return world.all[to]->changes->on_message({kGroup, from, kind, number, call, std::move(parts)}, 1);
  };
  EXPECT_NE(said(0, 1, Kind::kNow, 1, 0, Parts(2, 8)), "");
  EXPECT_NE(said(0, 1, Kind::kPropose, 1, 0, {}), "");
  EXPECT_NE(said(1, 2, Kind::kPropose, 1, 0, {}), "");
  EXPECT_NE(said(1, 0, Kind::kHold, 1, 0, {}), "");
  EXPECT_NE(said(1, 0, Kind::kCommit, 1, 0, Parts(9, 8)), "");  // was not proposed
  EXPECT_EQ(said(1, 0, Kind::kPropose, 1, 0, {}), "");
  EXPECT_NE(said(1, 0, Kind::kCommit, 1, 0, Parts(4, 8)), "");
  EXPECT_EQ(said(1, 0, Kind::kCommit, 1, 0, Parts(9, 8)), "");
  EXPECT_EQ(world.all[1]->changes->parts(), Parts(9, 8));
}

}  // namespace
}  // namespace hdt::daemon
