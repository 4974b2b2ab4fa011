// sampling.cc: softmax, the two limits, and inverse transform sampling.
#include "training/engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hdt::training {
namespace {

// NaN has no place in an order.
double value_of(float logit) { return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : logit; }

}  // namespace

// The largest logit is subtracted first, so that exp() cannot overflow.
std::vector<Candidate> sampling_candidates(std::span<const float> logits, const Sampling& sampling) {
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (size_t token = 0; token < logits.size(); ++token)
    all.push_back({static_cast<int64_t>(token), value_of(logits[token])});
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  const double largest = std::ranges::min_element(all, likelier)->weight;
  const bool greedy = sampling.temperature <= 0 || std::isinf(largest);
  const auto size = static_cast<int64_t>(all.size());
  const int64_t most = greedy ? 1 : sampling.top_k > 0 ? std::min(sampling.top_k, size) : size;
  const bool has_mass = !greedy && sampling.top_p > 0 && sampling.top_p < 1;
  if (most < size || has_mass) std::partial_sort(all.begin(), all.begin() + most, all.end(), likelier);
  all.resize(static_cast<size_t>(most));
  double total = 0;
  for (Candidate& candidate : all) {
    candidate.weight = greedy ? 1 : std::exp((candidate.weight - largest) / sampling.temperature);
    total += candidate.weight;
  }
  if (!has_mass) return all;
  double mass = 0;
  size_t kept = 0;
  while (kept < all.size() && mass < sampling.top_p * total) mass += all[kept++].weight;
  all.resize(std::max<size_t>(kept, 1));
  return all;
}

// Inverse transform sampling: walks through the weights until `uniform` of their sum is used up.
int64_t sample_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  const std::vector<Candidate> candidates = sampling_candidates(logits, sampling);
  double left = 0;
  for (const Candidate& candidate : candidates) left += candidate.weight;
  left *= uniform;
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return candidate.token;
  }
  // Rounding ate the last of it.
  return std::ranges::max_element(candidates, {}, &Candidate::weight)->token;
}

}  // namespace hdt::training
