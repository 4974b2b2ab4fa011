// parallel_encoder.h: threads that encode batches of text, with the results in the order of the batches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "training/data/input_source.h"

namespace hdt::training {

// The tokens of a batch: for each dataset, for each text. If `status` is a failure, there are none.
struct EncodedBatch {
  std::vector<std::vector<std::vector<int64_t>>> tokens;  // [dataset][text]
  size_t texts = 0;
  size_t bytes = 0;  // of the batch that it was made of
  Status status;
};

// One thread owns it and calls all functions. It puts batches in, and takes each result in the same order, so
// what is made of them does not depend on the number of threads. The owner bounds the memory: it puts nothing
// in while in_flight_bytes() is large. The destructor waits for the batches that are being encoded, and drops
// the others.
class ParallelEncoder {
 public:
  // Called by all threads at once. An exception becomes a failure of the batch.
  using Encode = std::function<EncodedBatch(const InputBatch& batch)>;

  // kSystem: a limit of the machine refuses the threads.
  static Result<std::unique_ptr<ParallelEncoder>> start(int workers, Encode encode);
  ~ParallelEncoder();
  ParallelEncoder(const ParallelEncoder&) = delete;
  ParallelEncoder& operator=(const ParallelEncoder&) = delete;

  void put(InputBatch batch);
  // Batches that were put in and not taken, and the bytes of their texts.
  size_t in_flight() const { return jobs_.size(); }
  size_t in_flight_bytes() const { return bytes_; }
  // Waits at most so long for the result of the oldest batch in flight; whether it is there. There must be
  // one.
  bool wait(std::chrono::milliseconds most);
  // The result of the oldest batch, for which wait() has returned true.
  EncodedBatch take();

 private:
  struct Job {
    InputBatch input;
    EncodedBatch output;
    bool done = false;  // under mutex_
  };
  explicit ParallelEncoder(Encode encode) : encode_(std::move(encode)) {}
  // What each thread does.
  void work();

  Encode encode_;
  std::vector<std::thread> threads_;
  size_t bytes_ = 0;  // the owner's

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_result_;
  // In the order of the batches; changed by the owner only, under mutex_. A thread keeps the address of its
  // job, which stays until it is done.
  std::deque<std::unique_ptr<Job>> jobs_;
  size_t started_ = 0;  // so many of jobs_ are taken by threads, or done; under mutex_
  bool stop_ = false;   // under mutex_
};

}  // namespace hdt::training
