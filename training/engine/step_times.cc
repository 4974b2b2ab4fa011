// step_times.cc: sums and quotients of times.
#include "training/engine/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace hdt::training {

// The clock's rounding must not make it negative.
double StepTimes::other() const { return std::max(0.0, total - compute - pp - dp - optimizer); }

void StepTimes::add(const StepTimes& more, double kept) {
  compute = compute * kept + more.compute;
  pp = pp * kept + more.pp;
  dp = dp * kept + more.dp;
  optimizer = optimizer * kept + more.optimizer;
  total = total * kept + more.total;
}

std::optional<TimeShares> shares_of(std::span<const StepTimes> ranks) {
  StepTimes sum;
  for (const StepTimes& rank : ranks) sum.add(rank);
  const double all = sum.compute + sum.pp + sum.dp + sum.optimizer + sum.other();
  if (!(all > 0)) return std::nullopt;
  return TimeShares{sum.compute / all, sum.pp / all, sum.dp / all, sum.optimizer / all, sum.other() / all};
}

// Each is rounded down, and what is missing goes to those that have lost most.
std::string to_text(const TimeShares& shares) {
  const std::array<double, 5> exact = {100 * shares.compute, 100 * shares.pp, 100 * shares.dp,
                                       100 * shares.optimizer, 100 * shares.other};
  std::array<int, 5> whole = {};
  std::array<size_t, 5> by_loss = {0, 1, 2, 3, 4};
  std::ranges::transform(exact, whole.begin(), [](double value) { return static_cast<int>(value); });
  std::ranges::stable_sort(by_loss, std::greater(), [&](size_t i) { return exact[i] - whole[i]; });
  const int missing = 100 - std::accumulate(whole.begin(), whole.end(), 0);
  for (int i = 0; i < missing; ++i) ++whole[by_loss[static_cast<size_t>(i) % by_loss.size()]];
  return fmt::format("compute {} % pp {} % dp {} % optimizer {} % other {} %", whole[0], whole[1], whole[2],
                     whole[3], whole[4]);
}

std::optional<SlowestRank> slowest_rank(std::span<const StepTimes> ranks) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest = std::ranges::max_element(ranks, {}, &StepTimes::compute);
  double others = -slowest->compute;
  for (const StepTimes& rank : ranks) others += rank.compute;
  const double mean = others / static_cast<double>(ranks.size() - 1);
  if (!(mean > 0)) return std::nullopt;
  return SlowestRank{static_cast<int>(slowest - ranks.begin()), slowest->compute / mean};
}

void TimesOfRanks::add(std::span<const StepTimes> ranks) {
  const bool first = sums_.empty();
  if (first || only_first_) sums_.assign(ranks.size(), StepTimes());
  only_first_ = first;
  // All ranks' sums lose the same share, as in RateEstimate.
  double longest = 0;
  for (const StepTimes& rank : ranks) longest = std::max(longest, rank.total);
  const double kept = half_life_ ? std::exp2(-longest / half_life_->count()) : 1;
  for (size_t rank = 0; rank < ranks.size(); ++rank) sums_[rank].add(ranks[rank], kept);
}

}  // namespace hdt::training
