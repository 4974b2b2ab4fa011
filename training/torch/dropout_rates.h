// dropout_rates.h: how much is dropped. Free of torch, so that flags can be read without its headers.
#pragma once

#include <cstdint>

namespace hdt::training {

// Probabilities, from 0 up to but not including 1. The same on all ranks.
struct DropoutRates {
  double attention = 0;  // of an attention probability
  double hidden = 0;  // of an element behind the embedding, and of what a layer adds to the residual stream
  uint64_t seed = 0;
};

}  // namespace hdt::training
