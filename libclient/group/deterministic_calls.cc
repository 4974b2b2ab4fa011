// deterministic_calls.cc: reductions in the order of ranks. A call is cut into rounds of kRoundBytes. In
// each round every rank owns a part of the elements: it receives that part from every other rank,
// combines all contributions from rank 0 to the last rank, and sends the result on to the ranks that
// need it. A round ends before the next one begins, so the memory for what comes in is bounded.
#include "libclient/group/deterministic_calls.h"

#include <algorithm>
#include <utility>

#include "base/contained.h"
#include "base/start_thread.h"
#include "collectives/kernels.h"
#include "libclient/group/communicator.h"

namespace hdt::client {

using collectives::Collective;
using collectives::type_size;

namespace {

// A rank's contribution to one round, in bytes. The memory for what comes in is less than twice as much,
// since a rank's own part is rounded up to whole elements.
constexpr uint64_t kRoundBytes = uint64_t{4} << 20;

}  // namespace

DeterministicCalls::DeterministicCalls(std::shared_ptr<Communicator> ring,
                                       std::function<void(const Status&)> completed)
    : ring_(std::move(ring)), completed_(std::move(completed)) {}

Status DeterministicCalls::start() {
  auto thread = start_thread("hdt-fixed-order", [this] { run(); });
  if (!thread.is_ok()) return thread.status();
  thread_ = thread.take();
  return Status::ok();
}

// The thread ends when it finds no task: finish() has waited for all of them.
DeterministicCalls::~DeterministicCalls() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// The list is the order of the calls; the thread is woken if it waits for one.
void DeterministicCalls::push(const ipc::Call& call, const void* send, void* recv,
                              std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(
        {call, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv), std::move(operation)});
  }
  changed_.notify_all();
}

void DeterministicCalls::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty(); });
}

// The lock is released before: leave() waits, and takes the ring's locks.
void DeterministicCalls::finish() {
  drain();
  ring_->leave();
}

void DeterministicCalls::set_timeout(int64_t ms) { ring_->set_timeout(ms); }

void DeterministicCalls::fail(const Status& why) { ring_->fail_with(why); }

// The task stays in the list while it runs, so that finish() waits for it. The operation completes
// before `completed_` is called, which rings: a waiter that wakes finds it complete. A call for which there
// is no memory fails the ring, and ends with a text that needs none.
void DeterministicCalls::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = tasks_.front();
    lock.unlock();
    Status status;
    Status copy;
    (void)contained(
        "a deterministic call",
        [&] {
          status = run_call(task);
          copy = status;
        },
        [&](const std::string& /*why*/) {
          (void)ring_->abandon({Code::kSystem, "no memory"});
          posted_.clear();
          copy = status = {Code::kSystem, "no memory"};
        });
    task.operation->complete(std::move(status));
    completed_(copy);
    lock.lock();
    tasks_.pop_front();
    changed_.notify_all();
  }
}

// First an empty call of the same kind goes round in the ring. It fails on all ranks if they do not
// all call the same, which sends and receives of bytes would not notice. (Different counts they do
// notice, as messages of different sizes.)
Status DeterministicCalls::run_call(const Task& task) {
  ipc::Call kind = task.call;
  kind.count = 0;
  HDT_RETURN_IF_ERROR(ring_->run_collective(kind, nullptr, nullptr));
  return task.call.what == Collective::kReduceScatter ? reduce_scatter(task) : all_reduce(task);
}

// All are waited for, also after a failure: their buffers are used again.
Status DeterministicCalls::wait_for_all() {
  Status first = std::exchange(refused_, Status::ok());
  for (const auto& operation : posted_) {
    const Status status = ring_->wait(*operation, Deadline::never());
    if (first.is_ok()) first = status;
  }
  posted_.clear();
  return first;
}

// Two steps: exchange the contributions, then combine. This rank owns one part of
// the buffers and sends others.
Status DeterministicCalls::combine(const Task& task, const std::function<Range(uint32_t)>& part_of,
                                   std::byte* result) {
  const uint32_t ranks = ring_->options().ranks, me = ring_->options().rank;
  const size_t width = type_size(task.call.type);
  // Keeps the operation, or the reason why it was refused.
  const auto post = [&](Result<std::shared_ptr<Operation>> operation) {
    if (operation.is_ok()) posted_.push_back(operation.take());
    if (!operation.is_ok() && refused_.is_ok()) refused_ = operation.status();
  };
  const Range own = part_of(me);
  const size_t own_bytes = own.count * width;
  // A place for each rank's contribution, this rank's own included, which stays unused.
  received_.resize(std::max(received_.size(), ranks * own_bytes));
  for (uint32_t i = 1; i < ranks; ++i) {
    // Pairwise: in round i each rank sends to the rank i after it, so no two begin with the same
    // partner. Empty parts are not sent: both ends compute that they are empty.
    const uint32_t to = (me + i) % ranks, from = (me + ranks - i) % ranks;
    const Range part = part_of(to);
    if (own_bytes != 0) post(ring_->recv(from, &received_[from * own_bytes], own_bytes));
    if (part.count != 0) post(ring_->send(to, task.send + part.first * width, part.count * width));
  }
  HDT_RETURN_IF_ERROR(wait_for_all());
  if (own_bytes == 0) return Status::ok();
  // The order of the sources is the order of ranks. That is the whole point.
  std::vector<const void*> sources;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    sources.push_back(rank == me ? task.send + own.first * width : &received_[rank * own_bytes]);
  }
  void* const results[] = {result};
  collectives::reduce(task.call.type, task.call.op, sources, results, own.count);
  // The division comes once, after the last contribution.
  if (task.call.op == collectives::ReduceOp::kAvg) {
    collectives::copy_divided(task.call.type, result, result, own.count, static_cast<int>(ranks));
  }
  return Status::ok();
}

// The counterpart of combine(): every part has one owner, which sends its result to all ranks that need
// it. The own result is in place already, if this rank receives at all.
Status DeterministicCalls::distribute(const Task& task, const std::function<Range(uint32_t)>& part_of,
                                      const std::byte* result) {
  const uint32_t ranks = ring_->options().ranks, me = ring_->options().rank;
  const size_t width = type_size(task.call.type);
  // A reduce has its result on the root only.
  const auto needs = [&](uint32_t rank) {
    return task.call.what == Collective::kAllReduce || static_cast<uint32_t>(task.call.root) == rank;
  };
  const auto post = [&](Result<std::shared_ptr<Operation>> operation) {
    if (operation.is_ok()) posted_.push_back(operation.take());
    if (!operation.is_ok() && refused_.is_ok()) refused_ = operation.status();
  };
  const Range own = part_of(me);
  for (uint32_t i = 1; i < ranks; ++i) {
    const uint32_t to = (me + i) % ranks, from = (me + ranks - i) % ranks;
    const Range part = part_of(from);
    if (needs(me) && part.count != 0)
      post(ring_->recv(from, task.recv + part.first * width, part.count * width));
    if (needs(to) && own.count != 0) post(ring_->send(to, result, own.count * width));
  }
  return wait_for_all();
}

// Allreduce and reduce: round by round over the buffers. In each round the ranks own equal shares of the
// range. The result of the own share is computed in place in the recvbuf; a rank that receives nothing
// (reduce, not the root) uses share_ instead.
Status DeterministicCalls::all_reduce(const Task& task) {
  const uint32_t ranks = ring_->options().ranks, me = ring_->options().rank;
  const size_t width = type_size(task.call.type);
  const uint64_t round = std::max<uint64_t>(kRoundBytes / width, 1);
  const bool receives =
      task.call.what == Collective::kAllReduce || static_cast<uint32_t>(task.call.root) == me;
  for (uint64_t first = 0; first < task.call.count; first += round) {
    const uint64_t count = std::min(round, task.call.count - first);
    const uint64_t size = (count + ranks - 1) / ranks;
    // Equal shares, rounded up; the last ones are shorter or empty.
    const auto part_of = [&](uint32_t rank) -> Range {
      const uint64_t begin = std::min(count, rank * size);
      return {first + begin, std::min(size, count - begin)};
    };
    const Range own = part_of(me);
    if (!receives) share_.resize(std::max<size_t>(share_.size(), own.count * width));
    std::byte* result = receives ? task.recv + own.first * width : share_.data();
    HDT_RETURN_IF_ERROR(combine(task, part_of, result));
    HDT_RETURN_IF_ERROR(distribute(task, part_of, result));
  }
  return Status::ok();
}

// Each rank owns its own block, so there is nothing to distribute. A round is a range of columns of all
// blocks, so that what a rank sends in a round stays within kRoundBytes.
Status DeterministicCalls::reduce_scatter(const Task& task) {
  const uint32_t ranks = ring_->options().ranks;
  const size_t width = type_size(task.call.type);
  const uint64_t round = std::max<uint64_t>(kRoundBytes / width / ranks, 1);
  for (uint64_t first = 0; first < task.call.count; first += round) {
    const uint64_t count = std::min(round, task.call.count - first);
    const auto part_of = [&](uint32_t rank) -> Range { return {rank * task.call.count + first, count}; };
    HDT_RETURN_IF_ERROR(combine(task, part_of, task.recv + first * width));
  }
  return Status::ok();
}

}  // namespace hdt::client
