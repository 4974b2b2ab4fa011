// checkpoint_saver.cc: one thread that sleeps until there is something to write.
#include "training/checkpoint/checkpoint_saver.h"

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

Status CheckpointSaver::begin(int64_t step, const ShardTensors& tensors) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kNone) {
      return {Code::kInvalidUsage, "a checkpoint is to be written while the one before is not finished"};
    }
  }
  // The thread does not touch the copy in kNone, so it is filled without the mutex.
  const size_t bytes = bytes_of(tensors.model) + bytes_of(tensors.optimizer);
  try {
    if (copy_.size() < bytes) copy_.resize(bytes);
  } catch (const std::bad_alloc&) {
    return {Code::kSystem, "no memory for a copy of " + std::to_string(bytes) +
                               " bytes, from which a checkpoint is written while training goes on"};
  }
  tensors_ = tensors;
  size_t at = 0;
  for (auto* const views : {&tensors_.model, &tensors_.optimizer}) {
    for (TensorView& view : *views) {
      if (!view.bytes.empty()) std::memcpy(copy_.data() + at, view.bytes.data(), view.bytes.size());
      view.bytes = std::span(copy_).subspan(at, view.bytes.size());
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

void CheckpointSaver::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (phase_ != Phase::kWriting && !stop_) changed_.wait_for(lock, kLongestWait);
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
