// ring_queue_test.cc: sends and receives between ranks of one node, stepped in random order.
#include "libclient/group/ring_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/protocol/node_queues/one_node.h"

namespace hdt::client {
namespace {

using ::testing::HasSubstr;
using testing::OneNode;
using testing::operation;

class RingRanks {
 public:
  RingRanks(uint32_t count, uint64_t seed) : node_(count), random_(seed) {
    for (uint32_t rank = 0; rank < count; ++rank)
      queues_.push_back(std::make_unique<RingQueue>(node_.access(rank)));
  }
  RingQueue& operator[](size_t rank) { return *queues_[rank]; }
  OneNode& node() { return node_; }
  void run() {
    for (int idle = 0; idle < 50;) idle = queues_[random_() % queues_.size()]->progress() ? 0 : idle + 1;
  }

 private:
  OneNode node_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<RingQueue>> queues_;
};

TEST(RingQueueTest, EveryoneSendsToEveryoneHerselfToo) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  constexpr uint32_t kRanks = 3;
  RingRanks all(kRanks, random());
  struct Message {
    std::vector<char> data;
    std::vector<char> received;
    std::shared_ptr<Operation> send = operation();
    std::shared_ptr<Operation> recv = operation();
  };
  std::vector<std::unique_ptr<Message>> messages;
  for (int round = 0; round < 5; ++round) {
    for (uint32_t from = 0; from < kRanks; ++from) {
      for (uint32_t to = 0; to < kRanks; ++to) {
        constexpr uint64_t kSizes[] = {0, 1, 100, 131072, 131073, 1000003};
        auto message = std::make_unique<Message>();
        message->data.resize(kSizes[random() % 6]);
        for (char& c : message->data) c = static_cast<char>(random());
        message->received.resize(message->data.size());
        all[from].push_send(to, message->data.data(), message->data.size(), message->send);
        all[to].push_recv(from, message->received.data(), message->received.size(), message->recv);
        messages.push_back(std::move(message));
      }
    }
  }
  all.run();
  ASSERT_TRUE(all.node().segment().failure().is_ok()) << all.node().segment().failure().to_string();
  for (const auto& message : messages) {
    EXPECT_TRUE(message->send->done());
    ASSERT_TRUE(message->recv->done());
    EXPECT_EQ(message->data, message->received);
  }
  EXPECT_TRUE(all[0].empty());
}

TEST(RingQueueTest, SizesMustAgree) {
  RingRanks all(2, 1);
  char data[8] = {};
  all[0].push_send(1, data, 8, operation());
  all[1].push_recv(0, data, 4, operation());
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kMismatch);
  EXPECT_THAT(all.node().segment().failure().message(), HasSubstr("sends 8 bytes, the receiver expects 4"));
}

TEST(RingQueueTest, AMessageThatWillNeverComeFails) {
  RingRanks all(2, 1);
  char data[4] = {};
  all[1].push_recv(0, data, 4, operation());
  all.run();
  EXPECT_TRUE(all.node().segment().failure().is_ok());
  all.node().segment().rank_state(0).left.store(1);
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kRankLost);
  EXPECT_EQ(all.node().segment().failed_rank(), 0);
}

TEST(RingQueueTest, WhatWasSentBeforeLeavingArrives) {
  RingRanks all(2, 1);
  int sent = 42, received = 0;
  all[0].push_send(1, &sent, sizeof sent, operation());
  all.run();
  all.node().segment().rank_state(0).left.store(1);
  all[1].push_recv(0, &received, sizeof received, operation());
  all.run();
  EXPECT_EQ(received, 42);
  EXPECT_TRUE(all.node().segment().failure().is_ok());
}

TEST(RingQueueTest, AForeignCellIsNotBelieved) {
  RingRanks all(2, 1);
  const auto& access = all.node().access(1);
  const uint32_t ring = access.layout().ring_index(ipc::Direction::kOut, 0, 1);
  auto* cell = reinterpret_cast<ipc::CellHeader*>(access.data(access.layout().cell(ring, 0)));
  *cell = {0, 4, 0, uint64_t{1} << 40};
  access.segment.ring(ring).head.store(1);
  char data[4] = {};
  all[1].push_recv(0, data, 4, operation());
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kInternal);
}

}  // namespace
}  // namespace hdt::client
