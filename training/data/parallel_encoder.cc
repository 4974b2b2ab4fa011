// parallel_encoder.cc: one queue under one lock. A batch takes milliseconds, so the lock is hardly ever
// waited for.
#include "training/data/parallel_encoder.h"

#include <exception>
#include <utility>

#include "base/start_thread.h"

namespace hdt::training {
namespace {

// How long a thread sleeps before it looks for work again, whether or not it was woken.
constexpr std::chrono::seconds kIdle{1};

}  // namespace

Result<std::unique_ptr<ParallelEncoder>> ParallelEncoder::start(int workers, Encode encode) {
  std::unique_ptr<ParallelEncoder> encoder(new ParallelEncoder(std::move(encode)));
  for (int worker = 0; worker < workers; ++worker) {
    Result<std::thread> thread = start_thread("hdt-encode", [self = encoder.get()] { self->work(); });
    if (!thread.is_ok()) return thread.status();
    encoder->threads_.push_back(thread.take());
  }
  return encoder;
}

ParallelEncoder::~ParallelEncoder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ParallelEncoder::put(InputBatch batch) {
  auto job = std::make_unique<Job>();
  bytes_ += batch.bytes();
  job->input = std::move(batch);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  has_work_.notify_one();
}

bool ParallelEncoder::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return has_result_.wait_for(lock, most, [&] { return jobs_.front()->done; });
}

EncodedBatch ParallelEncoder::take() {
  std::unique_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    job = std::move(jobs_.front());
    jobs_.pop_front();
    --started_;
  }
  bytes_ -= job->output.bytes;
  return std::move(job->output);
}

void ParallelEncoder::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (started_ == jobs_.size()) {
      has_work_.wait_for(lock, kIdle);
      continue;
    }
    Job& job = *jobs_[started_++];
    lock.unlock();
    try {
      job.output = encode_(job.input);
    } catch (const std::exception& error) {
      job.output = {};
      job.output.status = Status(Code::kSystem, job.input.name(0) + ": " + error.what());
    }
    job.output.texts = job.input.texts.size();
    job.output.bytes = job.input.bytes();
    job.input.texts = {};
    lock.lock();
    job.done = true;
    has_result_.notify_one();
  }
}

}  // namespace hdt::training
