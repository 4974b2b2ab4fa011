// step_times.h: where the time of a training step goes, rank by rank, and what that means for a person.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hdt::training {

// Seconds of one rank. The parts do not overlap, and other() is what they leave of the total: bubbles that no
// message ends, samples that are read, and the wait for the slowest rank at the end of a step.
struct StepTimes {
  double compute = 0;    // forward and backward
  double pp = 0;         // waits for messages from and to the stages beside it
  double dp = 0;         // waits for sums of gradients, and for parameters that other owners have updated
  double optimizer = 0;  // gradients set to zero, their norm, the update
  double total = 0;

  static constexpr size_t kValues = 5;
  std::array<double, kValues> values() const { return {compute, pp, dp, optimizer, total}; }
  static StepTimes of(std::span<const double, kValues> values) {
    return {values[0], values[1], values[2], values[3], values[4]};
  }
  double other() const;
  // Both are `kept` of this and all of `more` afterwards.
  void add(const StepTimes& more, double kept = 1);
};

// Adds the time from its construction to its destruction to `seconds`. It costs two reads of a clock that
// needs no system call.
class TimedPart {
 public:
  explicit TimedPart(double& seconds) : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
  ~TimedPart() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  TimedPart(const TimedPart&) = delete;
  TimedPart& operator=(const TimedPart&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_;
};

// The parts of the time of all ranks together. They are from 0 to 1, and their sum is 1.
struct TimeShares {
  double compute = 0;
  double pp = 0;
  double dp = 0;
  double optimizer = 0;
  double other = 0;
};

// Nothing if no time has passed.
std::optional<TimeShares> shares_of(std::span<const StepTimes> ranks);
// "compute 71 % pp 9 % dp 12 % optimizer 3 % other 5 %": whole percentages whose sum is 100.
std::string to_text(const TimeShares& shares);

// The rank that computes longest.
struct SlowestRank {
  int rank = 0;
  double factor = 1;  // its time divided by the mean of the others'

  // The others wait for it in each step. Less is within what two equal machines differ by.
  bool is_clear() const { return factor >= 1.2; }
};

// Nothing if there is one rank only, or the others have computed nothing.
std::optional<SlowestRank> slowest_rank(std::span<const StepTimes> ranks);

// Sums of all ranks' times over steps. Not thread-safe. A step that lies `half_life` back counts half;
// without one all count alike. The first step is forgotten with the second one, as it maps memory and opens
// connections.
class TimesOfRanks {
 public:
  explicit TimesOfRanks(std::optional<std::chrono::duration<double>> half_life = std::nullopt)
      : half_life_(half_life) {}
  // Adds a step: the times of each rank, of as many ranks each time.
  void add(std::span<const StepTimes> ranks);
  std::span<const StepTimes> ranks() const { return sums_; }

 private:
  std::optional<std::chrono::duration<double>> half_life_;
  std::vector<StepTimes> sums_;
  bool only_first_ = false;
};

}  // namespace hdt::training
