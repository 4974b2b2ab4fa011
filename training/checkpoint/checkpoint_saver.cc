// checkpoint_saver.cc: one thread that sleeps until there is something to write.
#include "training/checkpoint/checkpoint_saver.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/start_thread.h"

namespace hdt::training {
namespace {

constexpr auto kLongestWait = std::chrono::hours(1);  // of one wait; a longer one is several
constexpr size_t kAlignment = 64;                     // of each tensor in the copy
constexpr size_t kPageStride = size_t{16} << 20;      // bytes whose pages are asked for at once
constexpr int kNiceness = 10;                         // of the thread

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t bytes_of(const std::vector<TensorView>& tensors) {
  size_t bytes = 0;
  for (const TensorView& tensor : tensors) bytes += aligned(tensor.bytes.size());
  return bytes;
}

}  // namespace

Result<std::unique_ptr<CheckpointSaver>> CheckpointSaver::start(std::string save, int rank) {
  auto saver = std::unique_ptr<CheckpointSaver>(new CheckpointSaver(std::move(save), rank));
  auto thread = start_thread("hdt-checkpoint", [raw = saver.get()] { raw->run(); });
  if (!thread.is_ok()) return thread.status();
  saver->thread_ = thread.take();
  return saver;
}

CheckpointSaver::~CheckpointSaver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// The thread may be asking for pages of the old memory, which takes it some milliseconds.
bool CheckpointSaver::reserve(size_t bytes) {
  {
    std::unique_lock lock(mutex_);
    without_pages_ = {};
    while (provides_pages_) changed_.wait_for(lock, kLongestWait);
  }
  if (copy_bytes_ >= bytes) return true;
  copy_bytes_ = 0;
  copy_.reset();
  try {
    copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  copy_bytes_ = bytes;
  return true;
}

void CheckpointSaver::prepare(size_t tensors, size_t bytes) {
  if (!reserve(bytes + tensors * kAlignment)) return;
  {
    const std::lock_guard lock(mutex_);
    without_pages_ = {copy_.get(), copy_bytes_};
  }
  changed_.notify_all();
}

Status CheckpointSaver::begin(int64_t step, const ShardTensors& tensors) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kNone) {
      return {Code::kInvalidUsage, "a checkpoint is to be written while the one before is not finished"};
    }
  }
  // The thread does not touch the copy in kNone, so it is filled without the mutex.
  const size_t bytes = bytes_of(tensors.model) + bytes_of(tensors.optimizer);
  if (!reserve(bytes)) {
    return {Code::kSystem, "no memory for a copy of " + std::to_string(bytes) +
                               " bytes, from which a checkpoint is written while training goes on"};
  }
  tensors_ = tensors;
  size_t at = 0;
  for (auto* const views : {&tensors_.model, &tensors_.optimizer}) {
    for (TensorView& view : *views) {
      if (!view.bytes.empty()) std::memcpy(copy_.get() + at, view.bytes.data(), view.bytes.size());
      view.bytes = {copy_.get() + at, view.bytes.size()};
      at += aligned(view.bytes.size());
    }
  }
  {
    const std::lock_guard lock(mutex_);
    step_ = step;
    phase_ = Phase::kWriting;
  }
  changed_.notify_all();
  return Status::ok();
}

// A piece at a time, so that begin() and the destructor wait for one at most. The kernel provides pages
// without writing into them. If it cannot (that needs Linux 5.14), the copy waits for them, as without
// prepare().
void CheckpointSaver::provide_pages(std::unique_lock<std::mutex>& lock) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(without_pages_.data());
  const size_t bytes = std::min(without_pages_.size(), kPageStride - first % kPageStride);
  const uintptr_t end = (first + bytes) / page * page;
  const uintptr_t begin = (first + page - 1) / page * page;
  without_pages_ = without_pages_.subspan(bytes);
  if (begin >= end) return;
  provides_pages_ = true;
  lock.unlock();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): rounded to pages
  const bool provided = ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0;
  lock.lock();
  provides_pages_ = false;
  if (!provided) without_pages_ = {};
  changed_.notify_all();
}

// Where processors are few, training goes first: hashes and copies of gigabytes take seconds of one. On Linux
// the priority is the thread's own. A kernel that refuses leaves it as it is.
void CheckpointSaver::run() {
  (void)::setpriority(PRIO_PROCESS, 0, kNiceness);
  std::unique_lock lock(mutex_);
  for (;;) {
    while (phase_ != Phase::kWriting && !stop_) {
      if (without_pages_.empty()) {
        changed_.wait_for(lock, kLongestWait);
      } else {
        provide_pages(lock);
      }
    }
    if (stop_) return;
    const int64_t step = step_;
    lock.unlock();
    auto written = write_shards(save_, step, rank_, tensors_, &stop_);
    lock.lock();
    if (written.is_ok()) summary_ = written.take();
    error_ = written.status();
    phase_ = error_.is_ok() ? Phase::kFinished : Phase::kFailed;
    changed_.notify_all();
  }
}

CheckpointSaver::Progress CheckpointSaver::take() {
  Progress progress{phase_, {}, {}};
  if (phase_ == Phase::kFinished) progress.summary = std::move(summary_);
  if (phase_ == Phase::kFailed) progress.error = std::move(error_);
  if (phase_ != Phase::kWriting) phase_ = Phase::kNone;
  return progress;
}

CheckpointSaver::Progress CheckpointSaver::poll() {
  const std::lock_guard lock(mutex_);
  return take();
}

CheckpointSaver::Progress CheckpointSaver::finish(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (phase_ == Phase::kWriting && !deadline.expired()) {
    changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(
                                kLongestWait, std::chrono::nanoseconds(deadline.remaining_ns())));
  }
  return take();
}

}  // namespace hdt::training
