// adamw.h: Adam with decoupled weight decay (AdamW; Loshchilov and Hutter 2019: "Decoupled weight decay
// regularization") on flat memory.
#pragma once

#include <cstdint>
#include <span>

namespace hdt::training {

// The hyperparameters, in the names of the paper by Kingma and Ba ("Adam", 2015).
struct AdamWOptions {
  float beta1 = 0.9F;         // decay of the mean of gradients
  float beta2 = 0.95F;        // decay of the mean of their squares
  float epsilon = 1e-8F;      // added to the root, against division by 0
  float weight_decay = 0.1F;  // fraction of a weight, times the learning rate, that a step removes
};

// The state of some parameters: four arrays of equal length that do not overlap. The moments are zero
// before the first update and belong to the caller.
struct AdamWSpan {
  std::span<float> parameters;
  std::span<const float> gradients;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

// One update in place. The gradient used is gradients * gradient_scale, which holds the division by the
// tokens and the clipping. `step` counts from 1. `decay`: whether these parameters take weight decay.
void adamw_update(const AdamWSpan& state, const AdamWOptions& options, int64_t step, float learning_rate,
                  float gradient_scale, bool decay);

}  // namespace hdt::training
