// nic_share_test.cc: classes on a simulated NIC that serves what it was handed in order, at a fixed rate.
// Random weights, fragment sizes and pauses.
#include "transports/link/nic_share.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

#include "base/clock.h"

namespace hdt::transport {
namespace {

constexpr double kNicNsPerByte = 16;  // 500 Mbit/s
constexpr uint64_t kMostFragment = 128 << 10;

struct SentFragment {
  size_t sender;
  uint64_t bytes;
  int64_t handed_ns;
  int64_t served_ns = 0;
};

// One link: the fragments that it wants to send next.
struct Sender {
  Sender(NicShare& nic, const std::string& group_class) : lane(nic, group_class, 0) {}
  NicShare::Lane lane;
  bool endless = false;
  std::deque<uint64_t> queue;  // sizes, where it is not
  uint64_t served_bytes = 0;
  int64_t slowest_ns = 0;  // from being handed over to being served
  bool stuck = false;      // its peer takes nothing and acknowledges nothing
  uint64_t under_way = 0;
  // A connection takes no more than it can hold.
  uint64_t most_under_way = 1 << 20;
  bool has_fragment() const { return under_way < most_under_way && (endless || !queue.empty()); }
};

class World {
 public:
  explicit World(uint64_t seed) : random(seed) {}

  Sender& add(const std::string& group_class, const SharePolicy& policy) {
    nic.set_policy(group_class, policy);
    senders.push_back(std::make_unique<Sender>(nic, group_class));
    return *senders.back();
  }

  uint64_t fragment_bytes() {
    return std::uniform_int_distribution<uint64_t>(16 << 10, kMostFragment)(random);
  }

  bool hand_over(size_t i) {
    Sender& sender = *senders[i];
    if (!sender.has_fragment() || !sender.lane.admits(now)) return false;
    const uint64_t bytes = sender.endless ? fragment_bytes() : sender.queue.front();
    if (!sender.endless) sender.queue.pop_front();
    sender.lane.handed_over(bytes, now);
    sender.under_way += bytes;
    if (!sender.stuck) wire.push_back({i, bytes, now});
    return true;
  }

  void share() {
    for (bool moved = true; std::exchange(moved, false);) {
      nic.forget_wishes();
      for (const auto& sender : senders) {
        if (sender->has_fragment()) sender->lane.wants();
      }
      for (size_t i = 0; i < senders.size(); ++i) moved |= hand_over((i + turn) % senders.size());
    }
    ++turn;
  }

  // In steps of 20 us.
  void run(int64_t until) {
    constexpr int64_t kStepNs = 20'000;
    for (; now < until; now += kStepNs) {
      if (wire.empty()) {
        free_ns = now;
        idle_ns += std::any_of(senders.begin(), senders.end(),
                               [](const auto& s) { return s->has_fragment() && !s->stuck; })
                       ? kStepNs
                       : 0;
      }
      while (!wire.empty() &&
             free_ns + static_cast<int64_t>(static_cast<double>(wire.front().bytes) * kNicNsPerByte) <= now) {
        SentFragment fragment = wire.front();
        wire.pop_front();
        free_ns = std::max(free_ns, fragment.handed_ns) +
                  static_cast<int64_t>(static_cast<double>(fragment.bytes) * kNicNsPerByte);
        fragment.served_ns = free_ns;
        Sender& sender = *senders[fragment.sender];
        sender.served_bytes += fragment.bytes;
        sender.slowest_ns = std::max(sender.slowest_ns, free_ns - fragment.handed_ns);
        returning.push_back(fragment);
      }
      const bool acknowledging = now % acknowledged_every_ns < kStepNs;
      while (acknowledging && !returning.empty() && returning.front().served_ns + return_ns <= now) {
        const SentFragment fragment = returning.front();
        returning.pop_front();
        Sender& sender = *senders[fragment.sender];
        sender.lane.acknowledged(fragment.bytes, fragment.handed_ns, return_ns, now);
        sender.lane.settled(fragment.bytes);
        sender.under_way -= fragment.bytes;
      }
      share();
    }
  }

  std::mt19937_64 random;
  NicShare nic;
  std::vector<std::unique_ptr<Sender>> senders;
  std::deque<SentFragment> wire, returning;
  int64_t now = 0;
  int64_t free_ns = 0;
  int64_t idle_ns = 0;
  size_t turn = 0;
  int64_t return_ns = 100'000;             // until an acknowledgement is back, at the least
  int64_t acknowledged_every_ns = 20'000;  // all at once
};

class NicShareTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(NicShareTest, BulkClassesShareByWeightWhateverTheirLinks) {
  World world(GetParam());
  const auto classes = std::uniform_int_distribution<uint32_t>(2, 4)(world.random);
  std::vector<uint32_t> weights;
  std::vector<size_t> class_of;
  double sum = 0;
  for (uint32_t c = 0; c < classes; ++c) {
    weights.push_back(std::uniform_int_distribution<uint32_t>(1, 8)(world.random));
    sum += weights.back();
    const auto links = std::uniform_int_distribution<uint32_t>(1, 3)(world.random);
    for (uint32_t link = 0; link < links; ++link) {
      world.add("c" + std::to_string(c), {false, weights.back()}).endless = true;
      class_of.push_back(c);
    }
  }
  world.run(1'000 * kNsPerMs);
  std::vector<double> served(classes);
  double total = 0;
  for (size_t i = 0; i < class_of.size(); ++i) {
    served[class_of[i]] += static_cast<double>(world.senders[i]->served_bytes);
    total += static_cast<double>(world.senders[i]->served_bytes);
    EXPECT_GT(world.senders[i]->served_bytes, 0U) << "link " << i << ", seed " << GetParam();
  }
  for (uint32_t c = 0; c < classes; ++c) {
    EXPECT_NEAR(served[c] / total, weights[c] / sum, 0.02 * weights[c] / sum + 0.002)
        << "seed " << GetParam();
  }
}

TEST_P(NicShareTest, TheNicIsNeverIdleWhileAnyoneWantsToSend) {
  World world(GetParam());
  for (int c = 0; c < 4; ++c) world.add("c" + std::to_string(c), {false, static_cast<uint32_t>(c + 1)});
  for (int64_t time = 5 * kNsPerMs; time < 500 * kNsPerMs; time += 5 * kNsPerMs) {
    for (const auto& sender : world.senders) {
      const auto fragments = std::uniform_int_distribution<int>(-6, 6)(world.random);
      for (int i = 0; i < fragments; ++i) sender->queue.push_back(world.fragment_bytes());
    }
    world.run(time);
  }
  EXPECT_LT(world.idle_ns, 10 * kNsPerMs) << "seed " << GetParam();
}

TEST_P(NicShareTest, ALatencyFragmentWaitsForNoMoreThanWhatIsUnderWay) {
  World world(GetParam());
  for (int c = 0; c < 3; ++c) world.add("bulk" + std::to_string(c), {false, 1}).endless = true;
  Sender& latency = world.add("latency", {true, 1});
  world.run(100 * kNsPerMs);
  constexpr uint64_t kBytes = 64 << 10;
  // The bytes under way, the fragment of them that was admitted last, and the message itself.
  const auto most = [](double under_way_ns) {
    return under_way_ns * 1.1 + kNicNsPerByte * (kMostFragment + kBytes);
  };
  latency.queue.push_back(kBytes);  // after silence
  world.run(110 * kNsPerMs);
  EXPECT_EQ(latency.served_bytes, kBytes);
  EXPECT_LE(static_cast<double>(latency.slowest_ns), most(1e6)) << "seed " << GetParam();
  latency.slowest_ns = 0;
  for (int64_t time = 110 * kNsPerMs; time < 600 * kNsPerMs;) {
    latency.queue.push_back(kBytes);
    time += std::uniform_int_distribution<int64_t>(2 * kNsPerMs, 8 * kNsPerMs)(world.random);
    world.run(time);
  }
  EXPECT_GT(latency.served_bytes, 50 * kBytes);
  EXPECT_LE(static_cast<double>(latency.slowest_ns), most(0.5e6)) << "seed " << GetParam();
}

TEST_P(NicShareTest, APeerThatTakesNothingHoldsNobodyBack) {
  World world(GetParam());
  Sender& stuck = world.add("stuck", {false, 8});
  stuck.endless = true;
  Sender& well = world.add("well", {false, 1});
  well.endless = true;
  world.run(100 * kNsPerMs);
  stuck.stuck = true;
  world.run(200 * kNsPerMs);
  const uint64_t before = well.served_bytes;
  world.run(700 * kNsPerMs);
  EXPECT_GT(static_cast<double>(well.served_bytes - before), 0.9 * 500e6 / kNicNsPerByte)
      << "seed " << GetParam();
}

TEST_P(NicShareTest, WhoComesBackIsNotOwedWhatItDidNotWant) {
  World world(GetParam());
  Sender& first = world.add("first", {false, 1});
  Sender& second = world.add("second", {false, 1});
  first.endless = true;
  world.run(1'000 * kNsPerMs);
  second.endless = true;
  const uint64_t before = first.served_bytes;
  world.run(1'200 * kNsPerMs);
  EXPECT_GT(static_cast<double>(first.served_bytes - before), 0.4 * 200e6 / kNicNsPerByte)
      << "seed " << GetParam();
  // Nor shut out by who had the NIC alone and all that a connection holds under way.
  EXPECT_GT(static_cast<double>(second.served_bytes), 0.4 * 200e6 / kNicNsPerByte) << "seed " << GetParam();
}

// As behind a queue of the peer, which sends as much.
TEST_P(NicShareTest, AcknowledgementsThatTakeLongLeaveNoNicIdle) {
  World world(GetParam());
  world.return_ns = 3 * kNsPerMs;
  world.add("three", {false, 3}).endless = true;
  world.add("one", {false, 1}).endless = true;
  world.run(1'000 * kNsPerMs);
  EXPECT_LT(world.idle_ns, 20 * kNsPerMs) << "seed " << GetParam();
}

// A class alone has filled all that its connection holds; acknowledgements come rarely, many at once. Then
// another one begins.
TEST_P(NicShareTest, ALongQueueDrainsWhenAnotherClassBegins) {
  World world(GetParam());
  world.return_ns = 60 * kNsPerMs;
  world.acknowledged_every_ns = 40 * kNsPerMs;
  Sender& three = world.add("three", {false, 3});
  Sender& one = world.add("one", {false, 1});
  three.most_under_way = one.most_under_way = 16 << 20;
  three.endless = true;
  world.run(1'000 * kNsPerMs);
  one.endless = true;
  world.run(2'000 * kNsPerMs);
  EXPECT_LT(three.under_way + one.under_way, 8U << 20) << "seed " << GetParam();
  const uint64_t before_three = three.served_bytes;
  const uint64_t before_one = one.served_bytes;
  world.run(4'000 * kNsPerMs);
  const auto more = static_cast<double>(three.served_bytes - before_three);
  EXPECT_NEAR(more / (more + static_cast<double>(one.served_bytes - before_one)), 0.75, 0.02)
      << "seed " << GetParam();
}

// Runs until then, and asks meanwhile, as groups do.
double asked_until(World& world, Sender& sender, int64_t until) {
  double part = sender.lane.part(world.now);
  while (world.now < until) {
    world.run(std::min(until, world.now + 250 * kNsPerMs));
    part = sender.lane.part(world.now);
  }
  return part;
}

TEST_P(NicShareTest, AClassCountsOnItsWeightOnceAnotherOneHasLongUsedTheNic) {
  World world(GetParam());
  Sender& five = world.add("five", {false, 5});
  Sender& three = world.add("three", {false, 3});
  world.add("idle", {false, 8});
  five.endless = true;
  EXPECT_EQ(asked_until(world, five, 2'000 * kNsPerMs), 1);
  three.endless = true;
  EXPECT_EQ(asked_until(world, five, 2'700 * kNsPerMs), 1);
  EXPECT_EQ(asked_until(world, five, 4'500 * kNsPerMs), 0.625);
  EXPECT_EQ(three.lane.part(world.now), 0.375);
  three.endless = false;
  EXPECT_EQ(asked_until(world, five, 6'000 * kNsPerMs), 0.625);
  EXPECT_EQ(asked_until(world, five, 9'000 * kNsPerMs), 1);
}

// More than its weight, where the other one does not take all of its own. What comes from elsewhere uses the
// NIC as well.
TEST_P(NicShareTest, AClassCountsOnWhatAnotherOneLeaves) {
  World world(GetParam());
  Sender& own = world.add("own", {false, 1});
  Sender& other = world.add("other", {false, 3});
  own.endless = true;
  for (int i = 0; i < 20; ++i) {
    (void)asked_until(world, own, world.now + 100 * kNsPerMs);
    // 25 % of what the NIC carries in that time
    other.lane.heard(static_cast<uint64_t>(25e6 / kNicNsPerByte), world.now);
  }
  EXPECT_EQ(own.lane.part(world.now), 0.75);
}

TEST_P(NicShareTest, LatencyClassesCountOnAllAndBulkOnTheRest) {
  World world(GetParam());
  Sender& bulk = world.add("bulk", {false, 4});
  Sender& latency = world.add("latency", {true, 1});
  bulk.endless = true;
  for (int i = 0; i < 400; ++i) {
    // 64 KiB take a millisecond.
    for (int j = 0; j < 5; ++j) latency.queue.push_back(64 << 10);
    (void)asked_until(world, bulk, world.now + 10 * kNsPerMs);
  }
  EXPECT_EQ(bulk.lane.part(world.now), 0.5);
  EXPECT_EQ(latency.lane.part(world.now), 1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NicShareTest, ::testing::Range(uint64_t{1}, uint64_t{6}));

}  // namespace
}  // namespace hdt::transport
