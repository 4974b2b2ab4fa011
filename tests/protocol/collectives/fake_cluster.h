// fake_cluster.h: executors of all nodes on real memory, joined by a port that keeps every write until the
// test's policy lets it land, and checks that the data did not change in between.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "collectives/executor.h"

namespace hdt::collectives::testing {

enum class Delivery {
  kImmediate,  // a write lands inside the call, even at a node that has not started
  kLate,       // writes land one by one, the newest first, only when no executor can do anything
  kRandom,     // landings, on_sent, and which node advances (and so starts), in random order
};

struct NodeMemory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  std::vector<std::byte> scratch;
};

class FakeCluster {
 public:
  FakeCluster(Algorithm algorithm, const Problem& problem, DataType type, ReduceOp op,
              std::vector<NodeMemory>& memory, Delivery delivery, uint64_t seed);
  // Runs until every node is done; false if nothing can happen any more before.
  bool run();

 private:
  struct Write {
    int from;
    int to;
    uint32_t tag;
    const std::byte* data;
    std::vector<std::byte> snapshot;
    std::byte* place;
    size_t step;
  };
  struct Sent {
    int node;
    size_t step;
  };
  class NodePort : public Port {
   public:
    NodePort(FakeCluster& cluster, int node) : cluster_(cluster), node_(node) {}
    bool write(int peer, uint32_t tag, const void* data, size_t bytes, Area to, uint64_t offset,
               size_t step) override;

   private:
    FakeCluster& cluster_;
    int node_;
  };

  void land(size_t write);
  void report_sent(size_t sent);
  void step_randomly();
  bool all_done() const;

  std::vector<NodeMemory>& memory_;
  Delivery delivery_;
  std::mt19937_64 random_;
  std::vector<Write> writes_;
  std::vector<Sent> sent_;
  std::vector<std::unique_ptr<NodePort>> ports_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace hdt::collectives::testing
