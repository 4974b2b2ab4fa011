// ring_queue_test.cc: sends and receives between ranks of one node, stepped in random order.
#include "libclient/group/ring_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
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
  void run() { testing::run_until_none_moves(queues_, random_); }

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

// One integer, received from any rank or from one.
struct Received {
  int value = -1;
  int source = -1;
  std::shared_ptr<Operation> done = operation();
};
void send_int(RingRanks& all, uint32_t from, uint32_t to, const int& value) {
  all[from].push_send(to, &value, sizeof value, operation());
}
void recv_any(RingRanks& all, uint32_t to, Received& into) {
  all[to].push_recv_any(&into.value, sizeof into.value, &into.source, into.done);
}
void recv_from(RingRanks& all, uint32_t to, uint32_t from, Received& into) {
  all[to].push_recv(from, &into.value, sizeof into.value, into.done);
}

TEST(RingQueueTest, ReceivesMatchInTheOrderInWhichTheyWereSubmitted) {
  RingRanks all(3, 1);
  const int first = 1, second = 2, other = 3;
  Received any, from_one, again;
  recv_any(all, 0, any);
  recv_from(all, 0, 1, from_one);
  recv_any(all, 0, again);
  send_int(all, 1, 0, first);
  all.run();
  EXPECT_TRUE(any.done->done());
  EXPECT_EQ(any.value, first);
  EXPECT_EQ(any.source, 1);
  // The message of rank 2 is not for the receive that names rank 1, and does not wait for it.
  EXPECT_FALSE(from_one.done->done());
  send_int(all, 2, 0, other);
  all.run();
  EXPECT_FALSE(from_one.done->done());
  EXPECT_EQ(again.value, other);
  EXPECT_EQ(again.source, 2);
  send_int(all, 1, 0, second);
  all.run();
  EXPECT_EQ(from_one.value, second);
  EXPECT_TRUE(all[0].empty());
}

TEST(RingQueueTest, AnEarlierReceiveFromARankHasItsNextMessage) {
  RingRanks all(3, 1);
  const int values[] = {1, 2, 3};
  Received from_one, any, last;
  recv_from(all, 0, 1, from_one);
  recv_any(all, 0, any);
  recv_from(all, 0, 2, last);
  send_int(all, 1, 0, values[0]);
  send_int(all, 1, 0, values[1]);
  all.run();
  EXPECT_EQ(from_one.value, values[0]);
  EXPECT_EQ(any.value, values[1]);
  EXPECT_EQ(any.source, 1);
  send_int(all, 2, 0, values[2]);
  all.run();
  EXPECT_EQ(last.value, values[2]);
}

TEST(RingQueueTest, SendersOfMessagesForAnyoneTakeTurns) {
  RingRanks all(3, 1);
  const int values[] = {0, 1, 2};
  for (int round = 0; round < 4; ++round) {
    for (const uint32_t from : {1, 2, 0}) send_int(all, from, 0, values[from]);
  }
  all.run();
  // One at a time, and the last ones at once.
  Received received[12];
  for (int i = 0; i < 12; ++i) {
    recv_any(all, 0, received[i]);
    if (i < 7) all.run();
  }
  all.run();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(received[i].source, i % 3);
    EXPECT_EQ(received[i].value, i % 3);
  }
}

// Random sends to rank 0, and receives there from any rank and from given ones: messages of a rank are
// received in order, by the receives that were submitted first, and nothing waits that could be received.
TEST(RingQueueTest, AnySubmissionOrderKeepsTheOrderOfEverySender) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  constexpr uint32_t kRanks = 4;
  for (const size_t length : {size_t{2}, size_t{40'000}}) {  // in one cell, and in several
    RingRanks all(kRanks, random());
    struct Receive {
      int wanted;  // -1: from any rank
      int source;
      std::vector<int> data;
      std::shared_ptr<Operation> done = operation();
    };
    std::deque<std::vector<int>> sent;
    std::deque<Receive> receives;
    int sends[kRanks] = {};
    for (int step = 0; step < 200; ++step) {
      if (random() % 2 == 0) {
        const auto from = static_cast<uint32_t>(random() % kRanks);
        std::vector<int>& data = sent.emplace_back(length, static_cast<int>(from));
        data[0] = sends[from]++;
        all[from].push_send(0, data.data(), length * sizeof(int), operation());
      } else {
        const int wanted = static_cast<int>(random() % (kRanks + 2)) - 2;
        Receive& made = receives.emplace_back(
            Receive{std::max(wanted, -1), std::max(wanted, -1), std::vector<int>(length, -1)});
        if (made.wanted < 0) {
          all[0].push_recv_any(made.data.data(), length * sizeof(int), &made.source, made.done);
        } else {
          all[0].push_recv(static_cast<uint32_t>(made.wanted), made.data.data(), length * sizeof(int),
                           made.done);
        }
      }
      if (random() % 4 == 0) all[random() % kRanks].progress();
    }
    all.run();
    ASSERT_TRUE(all.node().segment().failure().is_ok()) << all.node().segment().failure().to_string();
    int received[kRanks] = {};
    bool any_waits = false;
    for (const Receive& receive : receives) {
      if (!receive.done->done()) {
        any_waits |= receive.wanted < 0;
        for (int rank = 0; rank < static_cast<int>(kRanks); ++rank) {
          if (!any_waits && receive.wanted != rank) continue;
          EXPECT_EQ(received[rank], sends[rank]) << "a receive waits for what rank " << rank << " sent";
        }
        continue;
      }
      ASSERT_FALSE(any_waits) << "a receive has overtaken one from any rank";
      ASSERT_GE(receive.source, 0);
      ASSERT_EQ(receive.data[0], received[receive.source]++);
      ASSERT_EQ(receive.data.back(), receive.source);
    }
  }
}

TEST(RingQueueTest, SizesMustAgreeWithTheFirstToCome) {
  RingRanks all(2, 1);
  char data[8] = {};
  int source = -1;
  all[0].push_send(1, data, 8, operation());
  all[1].push_recv_any(data, 4, &source, operation());
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kMismatch);
  EXPECT_THAT(all.node().segment().failure().message(), HasSubstr("sends 8 bytes, the receiver expects 4"));
  EXPECT_EQ(source, -1);
}

TEST(RingQueueTest, NobodyIsLeftToSend) {
  RingRanks all(3, 1);
  const int value = 5;
  Received last, never, behind;
  send_int(all, 2, 0, value);
  all.run();
  recv_any(all, 0, never);
  all.node().segment().rank_state(1).departed.store(1);
  all.node().segment().rank_state(2).departed.store(1);
  all.run();
  EXPECT_EQ(never.value, value) << "what was sent before leaving arrives";
  EXPECT_TRUE(all.node().segment().failure().is_ok());
  recv_any(all, 0, last);
  recv_from(all, 0, 1, behind);
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kRankLost);
  EXPECT_THAT(all.node().segment().failure().message(), HasSubstr("all other ranks have departed"));
  ASSERT_TRUE(all[0].most_urgent());
  all[0].fail_all(all.node().segment().failure());
  EXPECT_TRUE(all[0].empty());
  for (const Received* one : {&last, &behind}) {
    ASSERT_TRUE(one->done->done());
    EXPECT_EQ(one->done->status().code(), Code::kRankLost);
    EXPECT_EQ(one->source, -1);
  }
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
  all.node().segment().rank_state(0).departed.store(1);
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kRankLost);
  EXPECT_EQ(all.node().segment().failed_rank(), 0);
}

TEST(RingQueueTest, AMessageThatNobodyReceivesFailsOnceItHasNoRoom) {
  RingRanks all(2, 1);
  const std::vector<std::byte> data(size_t{1} << 24);
  all.node().segment().rank_state(1).departed.store(1);
  all[0].push_send(1, data.data(), 1, operation());
  all.run();
  EXPECT_TRUE(all.node().segment().failure().is_ok());
  all[0].push_send(1, data.data(), data.size(), operation());
  all.run();
  EXPECT_EQ(all.node().segment().failure().code(), Code::kRankLost);
  EXPECT_EQ(all.node().segment().failed_rank(), 1);
  EXPECT_THAT(all.node().segment().failure().message(), HasSubstr("without receiving message 1 from rank 0"));
}

TEST(RingQueueTest, WhatWasSentBeforeLeavingArrives) {
  RingRanks all(2, 1);
  int sent = 42, received = 0;
  all[0].push_send(1, &sent, sizeof sent, operation());
  all.run();
  all.node().segment().rank_state(0).departed.store(1);
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
