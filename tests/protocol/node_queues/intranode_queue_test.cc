// intranode_queue_test.cc: collectives of a group of one node, ranks stepped in random order, by every way
// there is.
#include "libclient/intranode/intranode_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <random>
#include <span>
#include <utility>

#include "tests/protocol/node_queues/one_node.h"

namespace hdt::client {
namespace {

using collectives::Collective;
using ::testing::HasSubstr;
using testing::OneNode;
using testing::operation;

ipc::Call call_of(Collective what, uint64_t count, int root = 0,
                  collectives::ReduceOp op = collectives::ReduceOp::kSum) {
  ipc::Call call;
  call.what = what;
  call.type = collectives::DataType::kInt64;
  call.op = op;
  call.count = count;
  call.root = root;
  return call;
}

// The ways of large calls: memory that the ranks share, process_vm_readv, or neither.
enum class Reachable { kShared, kThroughKernel, kNot };

class Ranks {
 public:
  Ranks(uint32_t count, uint64_t seed, Reachable reachable = Reachable::kThroughKernel)
      : node_(count), random_(seed) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      const NodeAccess& access = node_.access(rank);
      access.rank_state().pid.store(static_cast<uint32_t>(::getpid()));
      if (reachable == Reachable::kNot) access.rank_state().reach.store(1);
      auto memory = SharedMemory::create("buffers", kArenaBytes);
      EXPECT_TRUE(memory.is_ok());
      arenas_.push_back(memory.take());
      IntranodeQueue::Memory ways;
      ways.locate = [this, rank, reachable](const void* pointer, size_t) -> Result<Allocations::Place> {
        if (reachable != Reachable::kShared) return Allocations::Place{};
        const auto offset = static_cast<const std::byte*>(pointer) - arenas_[rank].data();
        return Allocations::Place{rank + 1, static_cast<uint64_t>(offset)};
      };
      ways.open = [this](uint64_t number) {
        return SharedMemory::map(UniqueFd(::dup(arenas_[number - 1].fd())));
      };
      queues_.push_back(std::make_unique<IntranodeQueue>(access, ways));
    }
  }
  IntranodeQueue& operator[](size_t rank) { return *queues_[rank]; }
  OneNode& node() { return node_; }
  void run() { testing::run_until_none_moves(queues_, random_); }
  // Two buffers of a rank, one behind the other.
  std::span<int64_t> send_of(uint32_t rank, uint64_t count) { return {start(rank), count}; }
  std::span<int64_t> recv_of(uint32_t rank, uint64_t sent, uint64_t count) {
    return {start(rank) + sent, count};
  }

 private:
  static constexpr size_t kArenaBytes = size_t{32} << 20;
  int64_t* start(uint32_t rank) { return reinterpret_cast<int64_t*>(arenas_[rank].data()); }

  OneNode node_;
  std::mt19937_64 random_;
  std::vector<SharedMemory> arenas_;
  std::vector<std::unique_ptr<IntranodeQueue>> queues_;
};

int64_t value(uint32_t rank, uint64_t index, uint64_t round) {
  return static_cast<int64_t>((rank + 1) * 1000003 + index * 31 + round * 7);
}

// The value that rank `me` must hold at index i after the call.
int64_t expected(const ipc::Call& call, uint32_t ranks, uint32_t me, uint64_t i, uint64_t round) {
  int64_t sum = 0;
  switch (call.what) {
    case Collective::kAllGather:
      return value(static_cast<uint32_t>(i / call.count), i % call.count, round);
    case Collective::kBroadcast:
      return value(static_cast<uint32_t>(call.root), i, round);
    case Collective::kReduceScatter:
      for (uint32_t r = 0; r < ranks; ++r) sum += value(r, me * call.count + i, round);
      break;
    default:
      for (uint32_t r = 0; r < ranks; ++r) sum += value(r, i, round);
  }
  return call.op == collectives::ReduceOp::kAvg ? sum / static_cast<int64_t>(ranks) : sum;
}

class EveryWay : public ::testing::TestWithParam<Reachable> {};

TEST_P(EveryWay, RandomCallsInAnyOrderOfSteps) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const uint32_t ranks : {1U, 2U, 3U, 5U}) {
    Ranks all(ranks, random(), GetParam());
    for (uint64_t round = 0; round < 40; ++round) {
      constexpr uint64_t kCounts[] = {0, 1, 5, 129, 2000, 4096, 70001, 200003};
      const auto what = static_cast<Collective>(random() % collectives::kCollectiveCount);
      const auto op = random() % 3 == 0 ? collectives::ReduceOp::kAvg : collectives::ReduceOp::kSum;
      const ipc::Call call = call_of(what, what == Collective::kBarrier ? 0 : kCounts[random() % 8],
                                     static_cast<int>(random() % ranks),
                                     collectives::reduces(what) ? op : collectives::ReduceOp::kSum);
      const uint64_t sent = call.count * (what == Collective::kReduceScatter ? ranks : 1);
      const uint64_t received = call.count * (what == Collective::kAllGather ? ranks : 1);
      // In place where the interface allows it, every third time.
      const bool in_place = random() % 3 == 0;
      std::vector<std::span<int64_t>> send(ranks), recv(ranks);
      std::vector<std::shared_ptr<Operation>> operations;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        send[rank] = all.send_of(rank, sent);
        recv[rank] = all.recv_of(rank, sent, received);
        if (in_place && what == Collective::kReduceScatter)
          recv[rank] = send[rank].subspan(rank * call.count, received);
        if (in_place && what == Collective::kAllGather)
          send[rank] = recv[rank].subspan(rank * call.count, sent);
        if (in_place && sent == received) recv[rank] = send[rank];
        std::fill(recv[rank].begin(), recv[rank].end(), -1);
        for (uint64_t i = 0; i < sent; ++i) send[rank][i] = value(rank, i, round);
        operations.push_back(operation());
        all[rank].push(call, send[rank].data(), recv[rank].data(), operations.back());
      }
      all.run();
      ASSERT_TRUE(all.node().segment().failure().is_ok()) << all.node().segment().failure().to_string();
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(operations[rank]->done()) << ipc::describe(call) << " rank " << rank;
        const bool holds = what != Collective::kReduce || static_cast<uint32_t>(call.root) == rank;
        if (!holds && in_place) continue;  // recvbuf is sendbuf there
        for (uint64_t i = 0; i < received; ++i) {
          ASSERT_EQ(recv[rank][i], holds ? expected(call, ranks, rank, i, round) : -1)
              << ipc::describe(call) << " rank " << rank << " element " << i;
        }
      }
    }
  }
}

std::string name_of_way(const ::testing::TestParamInfo<Reachable>& way) {
  return way.param == Reachable::kShared ? "Shared"
         : way.param == Reachable::kNot  ? "Staged"
                                         : "ThroughKernel";
}
INSTANTIATE_TEST_SUITE_P(IntranodeQueueTest, EveryWay,
                         ::testing::Values(Reachable::kShared, Reachable::kThroughKernel, Reachable::kNot),
                         name_of_way);

// An express call is posted at once; whether it ends there or becomes one of the queue, results and order
// stay.
TEST(IntranodeQueueTest, ExpressCallsAndQueuedOnesKeepTheirOrder) {
  Ranks all(2, 1);
  for (int64_t round = 0; round < 300; ++round) {
    const ipc::Call call = call_of(Collective::kAllReduce, 1);
    const int64_t mine[2] = {round, 10 * round};
    int64_t result[2] = {};
    ASSERT_TRUE(all[0].express(call, &mine[0], &result[0]));
    EXPECT_EQ(all[0].express_done(call, &mine[0], &result[0]), IntranodeQueue::Express::kWaiting);
    const auto late = operation();
    if (round % 3 == 0) all[0].adopt(call, &mine[0], &result[0], late);
    ASSERT_TRUE(all[1].express(call, &mine[1], &result[1]));
    ASSERT_EQ(all[1].express_done(call, &mine[1], &result[1]), IntranodeQueue::Express::kDone);
    if (round % 3 == 0) {
      all.run();
      ASSERT_TRUE(late->done());
    } else {
      ASSERT_EQ(all[0].express_done(call, &mine[0], &result[0]), IntranodeQueue::Express::kDone);
    }
    ASSERT_EQ(result[0], 11 * round);
    ASSERT_EQ(result[1], 11 * round);
  }
}

TEST(IntranodeQueueTest, ALargeCallIsNoExpressCall) {
  Ranks all(2, 1);
  std::vector<int64_t> data(ipc::kEagerBytes / 8 + 1);
  EXPECT_FALSE(all[0].express(call_of(Collective::kAllReduce, data.size()), data.data(), data.data()));
  EXPECT_TRUE(all[0].express(call_of(Collective::kAllReduce, data.size() - 1), data.data(), data.data()));
}

// Whether the first and the last blocks of allgathers in a row were copied into payloads.
std::pair<bool, bool> copied_blocks(Reachable reachable, uint64_t bytes) {
  Ranks all(2, 1, reachable);
  const ipc::Call call = call_of(Collective::kAllGather, bytes / sizeof(int64_t));
  std::pair<bool, bool> copied;
  for (uint64_t sequence = 0; sequence < 2 * ProtocolTuner::kTrial; ++sequence) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      operations.push_back(operation());
      all[rank].push(call, all.send_of(rank, call.count).data(),
                     all.recv_of(rank, call.count, 2 * call.count).data(), operations.back());
    }
    all.run();
    for (const auto& done : operations) EXPECT_TRUE(done->done());
    copied.second = all.node().segment().post(1, sequence).copied != 0;
    if (sequence == 0) copied.first = copied.second;
  }
  return copied;
}

// The first call of the kernel's protocol finds out whether it may.
TEST(IntranodeQueueTest, BlocksAreCopiedWhereTheKernelMayNotReadThem) {
  using Copied = std::pair<bool, bool>;
  EXPECT_EQ(copied_blocks(Reachable::kThroughKernel, ipc::kEagerBytes), (Copied{false, false}));
  EXPECT_EQ(copied_blocks(Reachable::kThroughKernel, 8 << 10), (Copied{true, true}));
  EXPECT_EQ(copied_blocks(Reachable::kNot, ipc::kEagerBytes), (Copied{false, true}));
  EXPECT_EQ(copied_blocks(Reachable::kNot, ipc::kEagerBytes + 8), (Copied{false, false}));
}

// A share that is given up because the group has failed is not taken for done.
TEST(IntranodeQueueTest, AFailedGroupCompletesNothing) {
  Ranks all(2, 1);
  std::vector<int64_t> data(1 << 20), result(1 << 20);
  const auto first = operation(), second = operation();
  all[0].push(call_of(Collective::kAllReduce, data.size()), data.data(), result.data(), first);
  all[1].push(call_of(Collective::kAllReduce, data.size()), data.data(), result.data(), second);
  all[0].progress();
  all.node().segment().fail(Code::kAborted, 1, "given up");
  all.run();
  EXPECT_FALSE(first->done());
  all[0].fail_all(all.node().segment().failure());
  all[1].fail_all(all.node().segment().failure());
  EXPECT_EQ(first->status().code(), Code::kAborted);
  EXPECT_EQ(second->status().code(), Code::kAborted);
}

TEST(IntranodeQueueTest, AnExposureBeyondItsMemoryIsNotBelieved) {
  Ranks all(2, 1, Reachable::kShared);
  const ipc::Call call = call_of(Collective::kAllReduce, 1 << 20);
  const auto sent = all.send_of(0, 1 << 20), received = all.recv_of(0, 1 << 20, 1 << 20);
  all[0].push(call, sent.data(), received.data(), operation());
  all[0].progress();
  auto& post = all.node().segment().post(1, 0);
  const ipc::Exposure beyond{uint64_t{31} << 20, 0, 2, 2};
  std::memcpy(post.content, &beyond, sizeof beyond);
  post.call = call;
  post.sequence.store(1);
  all[0].progress();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kInternal);
  EXPECT_THAT(all.node().segment().failure().message(), HasSubstr("a rank exposes up to"));
}

TEST(IntranodeQueueTest, MoreCallsThanTheRingHolds) {
  Ranks all(2, 1);
  constexpr int kCalls = 3 * static_cast<int>(ipc::kDescriptors);
  std::vector<int64_t> sums(2 * kCalls);
  std::vector<int64_t> ones(kCalls, 1);
  std::vector<std::shared_ptr<Operation>> operations;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < kCalls; ++i) {
      operations.push_back(operation());
      all[rank].push(call_of(Collective::kAllReduce, 1), &ones[i], &sums[rank * kCalls + i],
                     operations.back());
    }
  }
  all[0].progress();
  EXPECT_EQ(all.node().segment().rank_state(0).entered.load(), ipc::kDescriptors);
  all.run();
  for (const auto& done : operations) ASSERT_TRUE(done->done());
  EXPECT_EQ(sums, std::vector<int64_t>(2 * kCalls, 2));
}

TEST(IntranodeQueueTest, DifferentCallsFailTheGroupNamingBoth) {
  Ranks all(2, 1);
  int64_t data[2] = {};
  all[0].push(call_of(Collective::kAllReduce, 1), &data[0], &data[0], operation());
  all[1].push(call_of(Collective::kAllReduce, 2), data, data, operation());
  all.run();
  const Status failure = all.node().segment().failure();
  EXPECT_EQ(failure.code(), Code::kMismatch);
  EXPECT_THAT(failure.message(), HasSubstr("allreduce of 1 int64, sum"));
  EXPECT_THAT(failure.message(), HasSubstr("allreduce of 2 int64, sum"));
}

TEST(IntranodeQueueTest, ACallThatARankWillNeverMakeFails) {
  Ranks all(3, 1);
  int64_t data = 0;
  all.node().segment().rank_state(2).departed.store(1);
  const auto waiting = operation();
  all[0].push(call_of(Collective::kAllReduce, 1), &data, &data, waiting);
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kRankLost);
  EXPECT_EQ(all.node().segment().failed_rank(), 2);
  all[0].fail_all(all.node().segment().failure());
  EXPECT_EQ(waiting->status().code(), Code::kRankLost);
}

}  // namespace
}  // namespace hdt::client
