// sampling.h: draws a token from the logits that a model gives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hdt::training {

// Which tokens may be drawn, and how likely. The limits are applied as in Hugging Face's library: first
// top_k, then top_p to what is left.
struct Sampling {
  double temperature = 1.0;  // divides the logits; 0: always the likeliest token
  int64_t top_k = 0;         // the likeliest so many; 0: all
  // The likeliest, as few as have together at least this probability (nucleus sampling, Holtzman et al. 2020:
  // "The curious case of neural text degeneration"); 0 or 1: all.
  double top_p = 0;
};

// A token that may be drawn.
struct Candidate {
  int64_t token = 0;
  double weight = 0;  // in proportion to its probability
};

// The tokens that may be drawn, of which there is at least one. With a limit the likeliest come first, and of
// tokens alike the one with the lower number; without, all are in the order of their numbers. A logit that is
// NaN counts as the least. `logits` must not be empty.
std::vector<Candidate> sampling_candidates(std::span<const float> logits, const Sampling& sampling);

// Draws a token. `uniform` is in [0, 1); the same value gives the same token.
int64_t sample_token(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace hdt::training
