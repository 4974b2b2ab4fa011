// thread_group.cc: collectives by reading one another's memory between two barriers.
#include "tests/unit/bench/thread_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/commbench/element.h"

namespace hdt::bench {
namespace {

double combine(hdtRedOp_t op, double a, double b) {
  switch (op) {
    case HDT_PROD:
      return a * b;
    case HDT_MIN:
      return std::min(a, b);
    case HDT_MAX:
      return std::max(a, b);
    default:
      return a + b;
  }
}

uint64_t combine(hdtDataType_t type, hdtRedOp_t op, uint64_t a, uint64_t b) {
  const bool less = is_unsigned(type) ? a < b : static_cast<int64_t>(a) < static_cast<int64_t>(b);
  switch (op) {
    case HDT_PROD:
      return a * b;
    case HDT_MIN:
      return less ? a : b;
    case HDT_MAX:
      return less ? b : a;
    case HDT_BAND:
      return a & b;
    case HDT_BOR:
      return a | b;
    case HDT_BXOR:
      return a ^ b;
    default:
      return a + b;
  }
}

// Element `index` of all send buffers, reduced, in 32-bit floats at least.
void reduce_element(const std::vector<const Call*>& calls, size_t index, std::byte* out) {
  const hdtDataType_t type = calls[0]->type;
  const hdtRedOp_t op = calls[0]->op;
  const size_t offset = index * element_bytes(type);
  const auto at = [&](size_t rank) { return static_cast<const std::byte*>(calls[rank]->send) + offset; };
  if (is_integer(type)) {
    uint64_t result = load_integer(type, at(0));
    for (size_t rank = 1; rank < calls.size(); ++rank) {
      result = combine(type, op, result, load_integer(type, at(rank)));
    }
    if (op == HDT_AVG)
      result = static_cast<uint64_t>(static_cast<int64_t>(result) / static_cast<int64_t>(calls.size()));
    store_integer(type, result, out);
    return;
  }
  double result = load_float(type, at(0));
  for (size_t rank = 1; rank < calls.size(); ++rank) result = combine(op, result, load_float(type, at(rank)));
  store_float(type, op == HDT_AVG ? result / static_cast<double>(calls.size()) : result, out);
}

std::vector<std::byte> copy_of(const void* from, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  return {first, first + bytes};
}

// The bytes that `rank` must receive, computed before anyone writes.
std::vector<std::byte> result_of(const std::vector<const Call*>& calls, size_t rank) {
  const Call& mine = *calls[rank];
  const size_t bytes = mine.count * element_bytes(mine.type);
  const auto reduced = [&](size_t first) {
    std::vector<std::byte> out(bytes);
    for (size_t i = 0; i < mine.count; ++i)
      reduce_element(calls, first + i, out.data() + i * element_bytes(mine.type));
    return out;
  };
  switch (mine.what) {
    case Collective::kAllReduce:
      return reduced(0);
    case Collective::kReduce:
      return static_cast<int>(rank) == mine.root ? reduced(0) : std::vector<std::byte>();
    case Collective::kReduceScatter:
      return reduced(rank * mine.count);
    case Collective::kBroadcast:
      return copy_of(calls[static_cast<size_t>(mine.root)]->send, bytes);
    case Collective::kSendRecv:
      return copy_of(calls[(rank + calls.size() - 1) % calls.size()]->send, bytes);
    case Collective::kBarrier:
      return {};
    case Collective::kScatter:
      return copy_of(
          static_cast<const std::byte*>(calls[static_cast<size_t>(mine.root)]->send) + rank * bytes, bytes);
    case Collective::kGather:
      if (static_cast<int>(rank) != mine.root) return {};
      break;
    case Collective::kAllToAll:
    case Collective::kAllGather:
      break;
  }
  std::vector<std::byte> all;
  for (const Call* call : calls) {
    const size_t first = mine.what == Collective::kAllToAll ? rank * bytes : 0;
    const std::vector<std::byte> part = copy_of(static_cast<const std::byte*>(call->send) + first, bytes);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

class ThreadGroup::Member : public Communicator {
 public:
  Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return group_.ranks_; }
  int node_of(int) const override { return 0; }

  Status run(const Call& call) override {
    group_.calls_[static_cast<size_t>(rank_)] = &call;
    group_.barrier_.arrive_and_wait();
    const std::vector<std::byte> result = result_of(group_.calls_, static_cast<size_t>(rank_));
    group_.barrier_.arrive_and_wait();
    if (!result.empty()) std::memcpy(call.recv, result.data(), result.size());
    if (group_.fault_) group_.fault_(rank_, call);
    group_.barrier_.arrive_and_wait();
    return Status::ok();
  }

  Status barrier() override {
    group_.barrier_.arrive_and_wait();
    return Status::ok();
  }

  Status gather_all(const void* send, size_t bytes, void* recv) override {
    group_.gathered_[static_cast<size_t>(rank_)] = send;
    group_.barrier_.arrive_and_wait();
    for (size_t rank = 0; rank < group_.gathered_.size(); ++rank) {
      std::memcpy(static_cast<std::byte*>(recv) + rank * bytes, group_.gathered_[rank], bytes);
    }
    group_.barrier_.arrive_and_wait();
    return Status::ok();
  }

  Result<Memory> allocate(size_t bytes) override {
    return Memory(static_cast<std::byte*>(std::malloc(bytes)), [](std::byte* memory) { std::free(memory); });
  }

 private:
  ThreadGroup& group_;
  int rank_;
};

ThreadGroup::ThreadGroup(int ranks, Fault fault)
    : ranks_(ranks),
      fault_(std::move(fault)),
      barrier_(ranks),
      calls_(static_cast<size_t>(ranks)),
      gathered_(static_cast<size_t>(ranks)) {}

void ThreadGroup::run(const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([this, rank, &body] {
      Member member(*this, rank);
      body(member);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hdt::bench
