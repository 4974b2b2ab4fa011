// local_mover.cc: the three protocols to do a task: combine_mapped() in one pass over mapped buffers,
// combine() with copies of what is not mapped, copy() for what is not combined. All of them work in
// blocks, for two reasons: between two blocks a failure of the group is noticed, and a block that is
// read again is still in the cache.
#include "libclient/intranode/local_mover.h"

#include <algorithm>
#include <cstring>

#include "collectives/kernels.h"
#include "libclient/common/copy_bytes.h"

namespace hdt::client {

using collectives::type_size;

namespace {

// The largest block in bytes, and the largest one that stays in the cache between two uses.
constexpr size_t kLargestBlock = size_t{1} << 20;
constexpr size_t kCachedBlock = size_t{128} << 10;
// The largest one of which nothing is used again. Allgathers of ordinary memory from 4 MiB on took up to a
// tenth longer in blocks of 1 MiB.
constexpr size_t kLargestCopy = size_t{8} << 20;
// The largest block that is read through the kernel to be combined, and the maximum for all ranks together. A
// call into the kernel costs as much as copying some 16 KiB, so a small block wastes time. A large block
// leaves the core's cache before it is combined: with blocks of 1 MiB an allreduce of 2 to 8 MiB in place
// took 1.2 to 1.4 times as long.
constexpr size_t kLargestKernelBlock = size_t{256} << 10;
constexpr size_t kMostBounceBytes = size_t{1} << 20;

// A multiple of kCachedBlock, and at least one.
size_t kernel_block(size_t ranks) {
  return std::clamp(kMostBounceBytes / ranks / kCachedBlock * kCachedBlock, kCachedBlock,
                    kLargestKernelBlock);
}

// Whether the task reads or writes memory that is not mapped here.
bool through_kernel(const Task& task, std::span<const Reached> ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto rank = static_cast<int>(i);
    const bool reads = task.kind != Task::Kind::kCopy || task.source == rank;
    const bool writes = task.destination == kEveryone || task.destination == rank;
    if ((reads && ranks[i].send == nullptr) || (writes && ranks[i].recv == nullptr)) return true;
  }
  return false;
}

// The size of a block in bytes, for tasks that use a block more than once.
size_t block_of(const Task& task, std::span<const Reached> ranks) {
  return through_kernel(task, ranks) ? kernel_block(ranks.size()) : kCachedBlock;
}

// Up while this rank reads or writes buffers of other ranks (RankState::touching). A rank that gives a call
// up, because the group has failed, waits until nobody touches its buffers. The flag is stored before
// the failure is looked at, and the other rank looks at the flag after it has seen the failure: so
// either this rank sees the failure and does not begin, or the other one sees the flag and waits.
class Touch {
 public:
  explicit Touch(const NodeAccess& access) : flag_(access.rank_state().touching) {
    flag_.store(1, std::memory_order_seq_cst);
    allowed_ = !access.segment.failed();
  }
  ~Touch() { flag_.store(0, std::memory_order_release); }
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;
  // False: the group has failed, and no buffer may be touched.
  bool allowed() const { return allowed_; }

 private:
  std::atomic<uint32_t>& flag_;
  bool allowed_;
};

collectives::Stores stores_of(const ipc::Call& call, std::span<const Reached> ranks) {
  const auto count = static_cast<uint32_t>(ranks.size());
  return stores_for(call, count, count);
}

}  // namespace

Status LocalMover::read(const Reached& from, uint64_t offset, std::byte* to, size_t bytes) const {
  return read_proven(from.process, from.send_address + offset, to, bytes);
}

Status LocalMover::write(const Reached& to, uint64_t offset, const std::byte* from, size_t bytes) const {
  return write_proven(to.process, to.recv_address + offset, from, bytes);
}

// An average is divided in a second step, which needs the sum in one place first: so it goes through
// combine().
Status LocalMover::run(const ipc::Call& call, const Task& task, std::span<const Reached> ranks) {
  if (task.kind == Task::Kind::kCopy) return copy(call, task, ranks);
  const bool mapped = call.op != collectives::ReduceOp::kAvg && !through_kernel(task, ranks);
  return mapped ? combine_mapped(call, task, ranks) : combine(call, task, ranks);
}

void LocalMover::combine_block(const ipc::Call& call, const Task& task, std::span<const Reached> ranks,
                               uint64_t done, uint64_t count) {
  const size_t width = type_size(call.type);
  sources_.clear();
  destinations_.clear();
  for (size_t i = 0; i < ranks.size(); ++i) {
    sources_.push_back(ranks[i].send + (task.from + done) * width);
    if (task.destination != kEveryone && task.destination != static_cast<int>(i)) continue;
    destinations_.push_back(ranks[i].recv + (task.to + done) * width);
  }
  // One pass over the sources writes the result to every destination.
  collectives::reduce(call.type, call.op, sources_, destinations_, count, stores_of(call, ranks));
}

// Large blocks: nothing is read twice, so they need not stay in a cache.
Status LocalMover::combine_mapped(const ipc::Call& call, const Task& task, std::span<const Reached> ranks) {
  const uint64_t block = kLargestBlock / type_size(call.type);
  for (uint64_t done = 0; done < task.count; done += block) {
    const Touch touch(access_);
    if (!touch.allowed()) return Status::ok();
    combine_block(call, task, ranks, done, std::min(block, task.count - done));
  }
  return Status::ok();
}

// The contribution is small (eager calls), so it is one block, without a look at the group's failure.
void LocalMover::run_own(const ipc::Call& call, const Task& task, std::span<const Reached> ranks) {
  const size_t width = type_size(call.type);
  std::byte* own = ranks[access_.local].recv + task.to * width;
  if (task.kind == Task::Kind::kCopy) {
    copy_bytes(own, ranks[static_cast<size_t>(task.source)].send + task.from * width, task.count * width);
    return;
  }
  combine_block(call, task, ranks, 0, task.count);
  if (call.op == collectives::ReduceOp::kAvg) {
    collectives::copy_divided(call.type, own, own, task.count, static_cast<int>(ranks.size()));
  }
}

// For each block:
// 1. Read the contributions that are not mapped into bounce_.
// 2. Combine all of them, in the order of ranks, into this rank's recvbuf, or, if it does not get the
//    result, into its place in bounce_.
// 3. Divide, for an average.
// 4. Copy the result to the other ranks that get it.
Status LocalMover::combine(const ipc::Call& call, const Task& task, std::span<const Reached> ranks) {
  const size_t width = type_size(call.type);
  const size_t block_bytes = block_of(task, ranks);
  const uint64_t block = block_bytes / width;
  const bool mine = task.destination == kEveryone || task.destination == static_cast<int>(access_.local);
  bounce_.resize(std::max(bounce_.size(), ranks.size() * block_bytes));
  for (uint64_t done = 0; done < task.count; done += block) {
    // The flag is up for one block at a time, so that a rank that gives up does not wait for longer.
    const Touch touch(access_);
    if (!touch.allowed()) return Status::ok();
    const uint64_t count = std::min(block, task.count - done);
    const uint64_t from = (task.from + done) * width;
    const uint64_t to = (task.to + done) * width;
    sources_.clear();
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].send == nullptr)
        HDT_RETURN_IF_ERROR(read(ranks[i], from, &bounce_[i * block_bytes], count * width));
      sources_.push_back(ranks[i].send == nullptr ? &bounce_[i * block_bytes] : ranks[i].send + from);
    }
    std::byte* result = mine ? ranks[access_.local].recv + to : &bounce_[access_.local * block_bytes];
    void* const results[] = {result};
    collectives::reduce(call.type, call.op, sources_, results, count);
    if (call.op == collectives::ReduceOp::kAvg) {
      collectives::copy_divided(call.type, result, result, count, static_cast<int>(ranks.size()));
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (i == access_.local || (task.destination != kEveryone && task.destination != static_cast<int>(i)))
        continue;
      if (ranks[i].recv != nullptr) {
        std::memcpy(ranks[i].recv + to, result, count * width);
      } else {
        HDT_RETURN_IF_ERROR(write(ranks[i], to, result, count * width));
      }
    }
  }
  return Status::ok();
}

// In a copy to everyone, this rank's own recvbuf comes first: if the source is another process's, the
// copy is then the near source for all other ranks, and the source is read only once.
Status LocalMover::copy(const ipc::Call& call, const Task& task, std::span<const Reached> ranks) {
  const size_t width = type_size(call.type);
  const auto self = static_cast<int>(access_.local);
  const bool mine = task.destination == kEveryone || task.destination == self;
  const Reached& source = ranks[static_cast<size_t>(task.source)];
  const bool several = task.destination == kEveryone;
  const collectives::Stores stores = stores_of(call, ranks);
  const uint64_t block = (several ? block_of(task, ranks) : kLargestCopy) / width;
  for (uint64_t done = 0; done < task.count; done += block) {
    const Touch touch(access_);
    if (!touch.allowed()) return Status::ok();
    const size_t bytes = std::min(block, task.count - done) * width;
    const uint64_t from = (task.from + done) * width;
    const uint64_t to = (task.to + done) * width;
    const std::byte* near = source.send != nullptr ? source.send + from : nullptr;
    if (mine) {
      std::byte* own = ranks[access_.local].recv + to;
      if (near != nullptr) {
        copy_bytes(own, near, bytes, stores);
      } else {
        HDT_RETURN_IF_ERROR(read(source, from, own, bytes));
        near = own;
      }
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (static_cast<int>(i) == self || (!several && task.destination != static_cast<int>(i))) continue;
      // The root has its data already.
      if (i == static_cast<size_t>(task.source) && ranks[i].in_place) continue;
      if (ranks[i].recv != nullptr) {
        copy_bytes(ranks[i].recv + to, near, bytes, stores);
      } else {
        HDT_RETURN_IF_ERROR(write(ranks[i], to, near, bytes));
      }
    }
  }
  return Status::ok();
}

}  // namespace hdt::client
