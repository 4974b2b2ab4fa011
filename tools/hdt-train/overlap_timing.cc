// overlap_timing.cc: rank 0 computes, with and without a thread that sums. Rank 1 always waits in the
// next sum, and so takes part in as many sums as rank 0 wants. The first element of a sum says whether
// it was the last one.
#include "tools/hdt-train/overlap_timing.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/median.h"
#include "base/start_thread.h"
#include "tools/hdt-train/unit_timing.h"
#include "training/engine/hdt_operation.h"
#include "training/plan/describe/profile.h"

namespace hdt::tools {
namespace {

using training::status_of;

// 8 MiB: large enough that each sum goes on for a while, and small enough that a computation covers
// many.
constexpr size_t kElements = size_t{2} << 20;
// Measurements alone and beside communication, for the median of their ratios.
constexpr int kPairs = 7;
constexpr float kGoOn = 0;
constexpr float kEnd = 1;

// Sums of one buffer between the two ranks. Used by one thread at a time.
class Sums {
 public:
  // Throws hdt::Error.
  explicit Sums(Communicator& pair) : pair_(pair), values_(kElements) {}

  // Sums once. Rank 0 passes its wish; rank 1 passes kGoOn, which is 0, so the sum of the first elements
  // is rank 0's wish on both. The other elements are 0.
  Result<float> sum(float wish) {
    values_[0] = wish;
    HDT_RETURN_IF_ERROR(status_of([&] { pair_.all_reduce(values_); }));
    return values_[0];
  }

 private:
  Communicator& pair_;
  Memory<float> values_;  // zeros, except for the first
};

// Sums on a thread of its own until stop().
class Traffic {
 public:
  Traffic() = default;
  // When it returns, the first sum is complete, so the connection is warm. To be called once. kSystem: a
  // limit refuses the thread.
  Status start(Sums& sums) {
    auto thread = start_thread("hdt-traffic", [this, &sums] { run(sums); });
    if (!thread.is_ok()) return thread.status();
    thread_ = thread.take();
    started_.wait(false);
    return Status::ok();
  }
  ~Traffic() { (void)stop(); }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  Status stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  void run(Sums& sums) {
    while (status_.is_ok() && !stopping_) {
      status_ = sums.sum(kGoOn).status();
      started_ = true;
      started_.notify_one();
    }
  }

  std::atomic<bool> started_ = false;
  std::atomic<bool> stopping_ = false;
  // Belongs to the thread until it is joined.
  Status status_;
  std::thread thread_;
};

// Rank 1's part.
Status follow(Sums& sums) {
  while (true) {
    const Result<float> wish = sums.sum(kGoOn);
    if (!wish.is_ok()) return wish.status();
    if (wish.value() == kEnd) return Status::ok();
  }
}

// Seconds of a forward and a backward of one unit, with the largest micro-batch of the profile.
double unit_seconds(const TrainFlags& flags, training::UnitRange units, double slow_down) {
  UnitTiming timing;
  time_units(flags.shape, units, flags.types(), flags.profile_micro_batch_sizes.back(), slow_down, false,
             timing);
  return median(timing.forward) + median(timing.backward);
}

}  // namespace

Result<std::map<std::string, double>> time_overlap(const TrainFlags& flags, training::UnitRange units,
                                                   Communicator& pair) {
  std::optional<Sums> made;
  HDT_RETURN_IF_ERROR(status_of([&] { made.emplace(pair); }));
  Sums& sums = *made;
  std::map<std::string, double> slowdowns;
  if (pair.rank() != 0) {
    HDT_RETURN_IF_ERROR(follow(sums));
    return slowdowns;
  }
  for (const EmulatedDevice& device : flags.profile_devices) {
    std::vector<double> alone;
    std::vector<double> beside;
    for (int i = 0; i < kPairs; ++i) {
      alone.push_back(unit_seconds(flags, units, device.slow_down));
      Traffic traffic;
      HDT_RETURN_IF_ERROR(traffic.start(sums));
      beside.push_back(unit_seconds(flags, units, device.slow_down));
      HDT_RETURN_IF_ERROR(traffic.stop());
    }
    slowdowns[device.name] = plan::measured_slowdown(alone, beside);
  }
  // Releases rank 1.
  HDT_RETURN_IF_ERROR(sums.sum(kEnd).status());
  return slowdowns;
}

}  // namespace hdt::tools
