// batch_sampler.cc: from (seed, step, index) to a position in the stream. docs/design/data.md has the
// formula; a test pins its values, because other values would change the data of a run that is resumed.
#include "training/data/batch_sampler.h"

#include <fmt/format.h>

#include <cassert>

#include "training/data/keyed_permutation.h"

namespace hdt::training {

Result<BatchSampler> BatchSampler::create(std::shared_ptr<const TokenSource> source,
                                          const SamplerOptions& options) {
  if (options.sequence_length <= 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("sequence length {}, expected 1 or more", options.sequence_length));
  }
  if (options.global_batch_size <= 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("global batch size {}, expected 1 or more", options.global_batch_size));
  }
  const uint64_t tokens = source->token_count();
  const auto length = static_cast<uint64_t>(options.sequence_length);
  if (tokens <= length) {
    return Status(Code::kInvalidArgument,
                  fmt::format("the data holds {} tokens, expected at least {} for one sample of "
                              "sequence length {}",
                              tokens, length + 1, length));
  }
  BatchSampler sampler;
  sampler.source_ = std::move(source);
  sampler.options_ = options;
  sampler.windows_ = (tokens - 1) / length;
  return sampler;
}

uint64_t BatchSampler::epoch(uint64_t step, int64_t index) const {
  return (step * static_cast<uint64_t>(options_.global_batch_size) + static_cast<uint64_t>(index)) / windows_;
}

uint64_t BatchSampler::first_token(uint64_t step, int64_t index) const {
  assert(index >= 0 && index < options_.global_batch_size);
  return first_token_of(step * static_cast<uint64_t>(options_.global_batch_size) +
                        static_cast<uint64_t>(index));
}

// The epoch's key decides both the order of the windows and where the first one starts.
uint64_t BatchSampler::first_token_of(uint64_t number) const {
  const auto length = static_cast<uint64_t>(options_.sequence_length);
  const uint64_t key = mix_bits(mix_bits(options_.seed) ^ (number / windows_));  // of the epoch
  // The windows rarely fill the stream. Where they start varies with the epoch, so that no token is
  // always left out.
  const uint64_t slack = source_->token_count() - 1 - windows_ * length;
  const uint64_t start = mix_bits(key) % (slack + 1);
  return start + KeyedPermutation(key, windows_)(number % windows_) * length;
}

void BatchSampler::sample(uint64_t step, int64_t index, std::span<int64_t> out) const {
  assert(out.size() == static_cast<size_t>(options_.sequence_length) + 1);
  source_->read_tokens(first_token(step, index), out);
}

void BatchSampler::sample_number(uint64_t number, std::span<int64_t> out) const {
  assert(out.size() == static_cast<size_t>(options_.sequence_length) + 1);
  source_->read_tokens(first_token_of(number), out);
}

std::vector<int64_t> BatchSampler::sample(uint64_t step, int64_t index) const {
  std::vector<int64_t> tokens(static_cast<size_t>(options_.sequence_length) + 1);
  sample(step, index, tokens);
  return tokens;
}

}  // namespace hdt::training
