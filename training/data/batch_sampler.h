// batch_sampler.h: which tokens a step trains on, as a pure function of (seed, step, index in the global
// batch).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/data/token_source.h"

namespace hdt::training {

// The order of the data depends on these options alone. They are the same on all ranks.
struct SamplerOptions {
  uint64_t seed = 0;
  int64_t sequence_length = 0;    // input tokens of a sample
  int64_t global_batch_size = 0;  // samples of one step over all replicas
};

// The stream is cut into windows of `sequence_length` tokens (each overlaps the next by the one token
// that is only a target). An epoch visits every window once, in an order given by a permutation keyed
// with (seed, epoch); nothing is stored for each window. Sample number n = step * global_batch_size +
// index, so rank, replica and micro-batch do not enter: any parallel layout sees the same global batch.
// Const and free of shared state, so any number of threads may use one sampler.
class BatchSampler {
 public:
  // kInvalidArgument: sizes that are not positive, or a stream that is shorter than one sample.
  static Result<BatchSampler> create(std::shared_ptr<const TokenSource> source,
                                     const SamplerOptions& options);

  int64_t sequence_length() const { return options_.sequence_length; }
  int64_t global_batch_size() const { return options_.global_batch_size; }
  uint64_t windows_per_epoch() const { return windows_; }
  // The epoch to which sample `index` of `step` belongs. A step may contain the border of two epochs.
  uint64_t epoch(uint64_t step, int64_t index) const;
  // The position in the stream of the sample's first token.
  uint64_t first_token(uint64_t step, int64_t index) const;

  // Fills `out` with the sequence_length + 1 tokens of sample `index` (0 .. global_batch_size - 1) of
  // `step`: the inputs are the first sequence_length of them, the targets the last. out.size() must be
  // sequence_length + 1.
  void sample(uint64_t step, int64_t index, std::span<int64_t> out) const;
  std::vector<int64_t> sample(uint64_t step, int64_t index) const;
  // The same for sample number step * global_batch_size + index.
  void sample_number(uint64_t number, std::span<int64_t> out) const;

 private:
  BatchSampler() = default;
  uint64_t first_token_of(uint64_t number) const;

  std::shared_ptr<const TokenSource> source_;
  SamplerOptions options_;
  uint64_t windows_ = 0;  // in an epoch
};

}  // namespace hdt::training
