// one_node.h: the ranks of one node as plain objects on one segment, without daemon and threads, so that
// tests decide who moves when.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "base/shared_memory.h"
#include "libclient/common/node_access.h"
#include "libclient/common/operation.h"

namespace hdt::client::testing {

class OneNode {
 public:
  explicit OneNode(uint32_t ranks) {
    const ipc::Layout layout(ranks, 1, ranks);
    auto memory = SharedMemory::create("test", layout.total);
    EXPECT_TRUE(memory.is_ok()) << memory.status().to_string();
    memory_ = memory.take();
    const auto segment = ipc::Segment::format(memory_.data(), layout, 1, "test", 0);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      auto& access = *accesses_.emplace_back(std::make_unique<NodeAccess>());
      access.segment = segment;
      access.order = ipc::Order(std::vector<uint32_t>(ranks, 0), 1);
      access.rank = rank;
      access.local = rank;
      access.ring_daemon = [] { FAIL() << "a group of one node needs no daemon"; };
      access.fail = [segment](Code code, int32_t who, const std::string& text) {
        segment.fail(code, who, text);
      };
    }
  }
  const NodeAccess& access(uint32_t rank) const { return *accesses_[rank]; }
  const ipc::Segment& segment() const { return accesses_[0]->segment; }

 private:
  SharedMemory memory_;
  std::vector<std::unique_ptr<NodeAccess>> accesses_;
};

// Lets ranks move in random order until none can: each of them has tried since the last one moved. (A count
// of attempts without a move does not prove it: chance may leave out the only rank that can move.)
template <typename Queues>
void run_until_none_moves(Queues& queues, std::mt19937_64& random) {
  constexpr int kAttempts = 20;
  do {
    for (int idle = 0; idle < kAttempts;) idle = queues[random() % queues.size()]->progress() ? 0 : idle + 1;
  } while (std::any_of(queues.begin(), queues.end(), [](auto& queue) { return queue->progress(); }));
}

inline std::shared_ptr<Operation> operation() { return std::make_shared<Operation>(INT64_MAX); }

}  // namespace hdt::client::testing
