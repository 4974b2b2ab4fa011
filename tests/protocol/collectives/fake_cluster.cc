// fake_cluster.cc: see fake_cluster.h.
#include "tests/protocol/collectives/fake_cluster.h"

#include <gtest/gtest.h>

#include <utility>

namespace hdt::collectives::testing {

FakeCluster::FakeCluster(Algorithm algorithm, const Problem& problem, DataType type, ReduceOp op,
                         std::vector<NodeMemory>& memory, Delivery delivery, uint64_t seed)
    : memory_(memory), delivery_(delivery), random_(seed) {
  for (int node = 0; node < problem.nodes; ++node) {
    Problem own = problem;
    own.me = node;
    auto schedule = make_schedule(algorithm, own);
    memory[node].scratch.assign(schedule->scratch_length() * type_size(type), std::byte{0xA5});
    const SlotMemory slot{memory[node].input.data(), memory[node].output.data(), memory[node].scratch.data()};
    ports_.push_back(std::make_unique<NodePort>(*this, node));
    executors_.push_back(std::make_unique<Executor>(std::move(schedule), type, op, slot, *ports_.back()));
  }
}

bool FakeCluster::NodePort::write(int peer, uint32_t tag, const void* data, size_t bytes, Area to,
                                  uint64_t offset, size_t step) {
  NodeMemory& memory = cluster_.memory_[peer];
  auto& area = to == Area::kInput ? memory.input : to == Area::kOutput ? memory.output : memory.scratch;
  EXPECT_LE(offset + bytes, area.size()) << "node " << node_ << " writes outside the area at node " << peer;
  if (offset + bytes > area.size()) return false;
  const auto* from = static_cast<const std::byte*>(data);
  std::vector<std::byte> snapshot;
  if (bytes > 0) snapshot.assign(from, from + bytes);
  cluster_.writes_.push_back({node_, peer, tag, from, std::move(snapshot), area.data() + offset, step});
  if (cluster_.delivery_ == Delivery::kImmediate) cluster_.land(cluster_.writes_.size() - 1);
  return false;
}

void FakeCluster::land(size_t index) {
  const Write write = std::move(writes_[index]);
  writes_.erase(writes_.begin() + static_cast<ptrdiff_t>(index));
  if (!write.snapshot.empty()) {
    EXPECT_EQ(std::memcmp(write.data, write.snapshot.data(), write.snapshot.size()), 0)
        << "data of step " << write.step << " of node " << write.from << " changed before it was sent";
    std::memcpy(write.place, write.data, write.snapshot.size());
  }
  executors_[write.to]->on_arrived(write.from, write.tag);
  sent_.push_back({write.from, write.step});
}

void FakeCluster::report_sent(size_t index) {
  const Sent sent = sent_[index];
  sent_.erase(sent_.begin() + static_cast<ptrdiff_t>(index));
  executors_[sent.node]->on_sent(sent.step);
}

bool FakeCluster::all_done() const {
  for (const auto& executor : executors_) {
    if (!executor->done()) return false;
  }
  return true;
}

void FakeCluster::step_randomly() {
  const size_t choice = random_() % (writes_.size() + sent_.size() + executors_.size());
  if (choice < writes_.size()) {
    land(choice);
  } else if (choice < writes_.size() + sent_.size()) {
    report_sent(choice - writes_.size());
  } else {
    executors_[choice - writes_.size() - sent_.size()]->advance();
  }
}

bool FakeCluster::run() {
  if (delivery_ == Delivery::kRandom) {
    // Bounded: most of the events are random, then the rest is brought to its end in order.
    for (size_t i = 0; i < executors_.size() * 400 && !all_done(); ++i) step_randomly();
  }
  while (true) {
    for (const auto& executor : executors_) executor->advance();
    if (delivery_ == Delivery::kLate) {
      if (!writes_.empty()) {
        land(writes_.size() - 1);
        continue;
      }
    } else {
      while (!writes_.empty()) land(0);
    }
    if (all_done()) return true;
    if (sent_.empty()) {
      for (const auto& executor : executors_) executor->advance();
      if (writes_.empty() && sent_.empty()) return all_done();
    }
    while (!sent_.empty()) report_sent(sent_.size() - 1);
  }
}

}  // namespace hdt::collectives::testing
