// checkpoint_saver.h: writes a rank's shards while training goes on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "training/checkpoint/checkpoint_folder.h"

namespace hdt::training {

// Owns one thread, and memory for one copy of the rank's tensors, which is allocated by prepare() or the
// first begin() and used again. The functions are for one thread, that of training. Agreement among ranks
// (has everybody written? then rank 0 publishes) is the caller's.
class CheckpointSaver {
 public:
  enum class Phase : uint8_t { kNone, kWriting, kFinished, kFailed };
  struct Progress {
    Phase phase = Phase::kNone;
    ShardSummary summary;  // kFinished
    Status error;          // kFailed
  };

  // kSystem: a limit refuses the thread.
  static Result<std::unique_ptr<CheckpointSaver>> start(std::string save, int rank);
  // Stops a writing that is under way within a few MB, and removes what it wrote.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Allocates the copy, for so many tensors of so many bytes together, and lets the thread make the kernel
  // provide its pages, which takes about a second for a few GB. The first begin() finds them there; without
  // this call it waits for each. To be called before the first begin(). If there is no memory, begin() says
  // so.
  void prepare(size_t tensors, size_t bytes);
  // Copies the tensors and has the copy written; returns after the copy. kInvalidUsage: the writing before is
  // still under way or its result was not taken. kSystem: no memory for the copy.
  Status begin(int64_t step, const ShardTensors& tensors);
  // The outcome of the last begin(). kFinished and kFailed are returned once; then it is kNone.
  Progress poll();
  // Waits for the end of the writing, at most until the deadline, then as poll(): kWriting after the
  // deadline.
  Progress finish(Deadline deadline);

 private:
  CheckpointSaver(std::string save, int rank) : save_(std::move(save)), rank_(rank) {}
  // Memory of the copy, not zeroed: pages that nobody has written to are provided by the first write.
  bool reserve(size_t bytes);
  void run();
  void provide_pages(std::unique_lock<std::mutex>& lock);
  Progress take();  // mutex_ held

  const std::string save_;
  const int rank_;
  std::unique_ptr<std::byte[]>
      copy_;  // written by begin() while phase_ is kNone, read by the thread in kWriting
  size_t copy_bytes_ = 0;
  ShardTensors tensors_;  // views of copy_
  std::atomic<bool> stop_{false};

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  // The part of the copy whose pages the thread has yet to ask for. Emptied by begin().
  std::span<std::byte> without_pages_;
  bool provides_pages_ = false;  // the thread is asking, for the first bytes of what without_pages_ was
  int64_t step_ = 0;
  Phase phase_ = Phase::kNone;
  ShardSummary summary_;
  Status error_;
  std::thread thread_;  // ended by the destructor
};

}  // namespace hdt::training
