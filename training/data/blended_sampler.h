// blended_sampler.h: samples from several datasets, each as often as its weight says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/data/batch_sampler.h"
#include "training/data/token_source.h"

namespace hdt::training {

// A dataset and its share of the samples, in relation to the other weights.
struct WeightedSource {
  std::shared_ptr<const TokenSource> tokens;
  double weight = 1;
};

// Sample number n comes from a dataset that follows from n and the weights alone, and is the next one of
// that dataset's own order (BatchSampler). So this is a pure function, too, and the same on every layout.
// Which dataset: Megatron's rule, the one that is furthest behind its weight, over a period of 65,536
// samples, which then repeats; a table of the period is all that is kept. With one dataset it is that
// dataset's BatchSampler. Const and free of shared state.
class BlendedSampler {
 public:
  static constexpr uint64_t kPeriod = 65'536;

  // kInvalidArgument: what BatchSampler::create() refuses (`failed` is the index of the source then), a
  // weight that is not above 0, or one so small that no sample of a period comes from its source.
  static Result<BlendedSampler> create(const std::vector<WeightedSource>& sources,
                                       const SamplerOptions& options, size_t* failed = nullptr);

  // As BatchSampler::sample().
  void sample(uint64_t step, int64_t index, std::span<int64_t> out) const;
  // The most samples, from the first one on, that contain no window of any dataset twice; at least 1.
  uint64_t samples_of_one_pass() const;

  // The dataset of sample `number`, and the number of the sample there.
  struct Place {
    size_t source = 0;
    uint64_t number = 0;
  };
  Place place_of(uint64_t number) const;

 private:
  BlendedSampler() = default;

  SamplerOptions options_;
  std::vector<BatchSampler> samplers_;
  // For each sample of a period its dataset, and how many samples of the dataset come before it.
  std::vector<uint16_t> sources_;
  std::vector<uint32_t> before_;
  std::vector<uint64_t> of_period_;  // samples of each dataset in a period
};

}  // namespace hdt::training
