// blended_sampler.cc: makes the table of a period, and looks samples up in it.
#include "training/data/blended_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hdt::training {

Result<BlendedSampler> BlendedSampler::create(const std::vector<WeightedSource>& sources,
                                              const SamplerOptions& options, size_t* failed) {
  constexpr size_t kMostSources = 1024;  // the table costs so many steps for each sample of a period
  if (sources.empty() || sources.size() > kMostSources) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} datasets, expected 1 to {}", sources.size(), kMostSources));
  }
  BlendedSampler blended;
  blended.options_ = options;
  double sum = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (failed != nullptr) *failed = i;
    if (!(sources[i].weight > 0 && std::isfinite(sources[i].weight)))
      return Status(Code::kInvalidArgument, fmt::format("weight {}, expected above 0", sources[i].weight));
    Result<BatchSampler> sampler = BatchSampler::create(sources[i].tokens, options);
    if (!sampler.is_ok()) return sampler.status();
    blended.samplers_.push_back(sampler.take());
    sum += sources[i].weight;
  }
  // The rule gives each source a sample at once. For a source that is due none in a period that would be too
  // many.
  for (size_t i = 0; i < sources.size(); ++i) {
    if (failed != nullptr) *failed = i;
    if (sources[i].weight / sum * static_cast<double>(kPeriod) < 0.5) {
      return Status(Code::kInvalidArgument,
                    fmt::format("weight {} of {}: no sample of {} would come from it, expected more",
                                sources[i].weight, sum, kPeriod));
    }
  }
  blended.of_period_.assign(sources.size(), 0);
  for (uint64_t n = 0; n < kPeriod; ++n) {
    // How many samples each should have had by now, and has not. The first of equal ones is taken.
    size_t next = 0;
    double furthest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < sources.size(); ++i) {
      const double due = sources[i].weight / sum * static_cast<double>(std::max<uint64_t>(n, 1));
      const double behind = due - static_cast<double>(blended.of_period_[i]);
      if (behind > furthest) furthest = behind, next = i;
    }
    blended.sources_.push_back(static_cast<uint16_t>(next));
    blended.before_.push_back(static_cast<uint32_t>(blended.of_period_[next]++));
  }
  return blended;
}

BlendedSampler::Place BlendedSampler::place_of(uint64_t number) const {
  const uint64_t at = number % kPeriod;
  const size_t source = sources_[at];
  return {source, number / kPeriod * of_period_[source] + before_[at]};
}

void BlendedSampler::sample(uint64_t step, int64_t index, std::span<int64_t> out) const {
  const Place place =
      place_of(step * static_cast<uint64_t>(options_.global_batch_size) + static_cast<uint64_t>(index));
  samplers_[place.source].sample_number(place.number, out);
}

uint64_t BlendedSampler::samples_of_one_pass() const {
  // With several datasets the one whose windows are used up first, at its mean rate; the unevenness inside a
  // period is below one sample.
  double most = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < samplers_.size(); ++i) {
    const auto windows = static_cast<double>(samplers_[i].windows_per_epoch());
    most = std::min(most, windows * static_cast<double>(kPeriod) / static_cast<double>(of_period_[i]));
  }
  return std::max<uint64_t>(static_cast<uint64_t>(most), 1);
}

}  // namespace hdt::training
