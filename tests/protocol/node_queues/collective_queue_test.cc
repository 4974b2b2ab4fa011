// collective_queue_test.cc: the node-local part of collectives, ranks stepped in random order.
#include "libclient/collective_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/protocol/node_queues/one_node.h"

namespace hdt::client {
namespace {

using collectives::Collective;
using ::testing::HasSubstr;
using testing::OneNode;
using testing::operation;

session::Call call_of(Collective what, uint64_t count, int root = 0,
                      collectives::ReduceOp op = collectives::ReduceOp::kSum) {
  session::Call call;
  call.what = what;
  call.type = collectives::DataType::kInt64;
  call.op = op;
  call.count = count;
  call.root = root;
  return call;
}

class Ranks {
 public:
  Ranks(uint32_t count, uint64_t seed) : node_(count), random_(seed) {
    for (uint32_t rank = 0; rank < count; ++rank)
      queues_.push_back(std::make_unique<CollectiveQueue>(node_.access(rank)));
  }
  CollectiveQueue& operator[](size_t rank) { return *queues_[rank]; }
  OneNode& node() { return node_; }
  // Lets ranks move in random order until none can.
  void run() {
    for (int idle = 0; idle < 50;) idle = queues_[random_() % queues_.size()]->progress() ? 0 : idle + 1;
  }

 private:
  OneNode node_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<CollectiveQueue>> queues_;
};

int64_t value(uint32_t rank, uint64_t index, uint64_t round) {
  return static_cast<int64_t>((rank + 1) * 1000003 + index * 31 + round * 7);
}

// What rank `me` must hold at index i after the call.
int64_t expected(const session::Call& call, uint32_t ranks, uint32_t me, uint64_t i, uint64_t round) {
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

TEST(CollectiveQueueTest, RandomCallsInAnyOrderOfSteps) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const uint32_t ranks : {1U, 2U, 3U, 5U}) {
    Ranks all(ranks, random());
    for (uint64_t round = 0; round < 40; ++round) {
      constexpr uint64_t kCounts[] = {0, 1, 5, 129, 4096, 70001, 200003};
      const auto what = static_cast<Collective>(random() % collectives::kCollectiveCount);
      const auto op = random() % 3 == 0 ? collectives::ReduceOp::kAvg : collectives::ReduceOp::kSum;
      const session::Call call = call_of(what, what == Collective::kBarrier ? 0 : kCounts[random() % 7],
                                         static_cast<int>(random() % ranks),
                                         collectives::reduces(what) ? op : collectives::ReduceOp::kSum);
      const uint64_t sent = call.count * (what == Collective::kReduceScatter ? ranks : 1);
      const uint64_t received = call.count * (what == Collective::kAllGather ? ranks : 1);
      std::vector<std::vector<int64_t>> send(ranks), recv(ranks);
      std::vector<std::shared_ptr<Operation>> operations;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (uint64_t i = 0; i < sent; ++i) send[rank].push_back(value(rank, i, round));
        recv[rank].assign(received, -1);
        operations.push_back(operation());
        all[rank].push(call, send[rank].data(), recv[rank].data(), operations.back());
      }
      all.run();
      ASSERT_TRUE(all.node().segment().failure().is_ok()) << all.node().segment().failure().to_string();
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(operations[rank]->done()) << session::describe(call) << " rank " << rank;
        const bool holds = what != Collective::kReduce || static_cast<uint32_t>(call.root) == rank;
        for (uint64_t i = 0; i < received; ++i) {
          ASSERT_EQ(recv[rank][i], holds ? expected(call, ranks, rank, i, round) : -1)
              << session::describe(call) << " rank " << rank << " element " << i;
        }
      }
    }
  }
}

TEST(CollectiveQueueTest, MoreCallsThanTheRingHolds) {
  Ranks all(2, 1);
  constexpr int kCalls = 3 * static_cast<int>(session::kCallRing);
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
  EXPECT_EQ(all.node().segment().board(0).entered.load(), session::kCallRing);
  all.run();
  for (const auto& done : operations) ASSERT_TRUE(done->done());
  EXPECT_EQ(sums, std::vector<int64_t>(2 * kCalls, 2));
}

TEST(CollectiveQueueTest, DifferentCallsFailTheGroupNamingBoth) {
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

TEST(CollectiveQueueTest, ACallThatARankWillNeverMakeFails) {
  Ranks all(3, 1);
  int64_t data = 0;
  all.node().segment().board(2).left.store(1);
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
