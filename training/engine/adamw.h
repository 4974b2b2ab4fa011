// adamw.h: Adam with decoupled weight decay (AdamW; Loshchilov and Hutter 2019: "Decoupled weight decay
// regularization") on flat memory.
#pragma once

#include <cstdint>
#include <span>

namespace hdt::training {

// The hyperparameters, in the names of the paper by Kingma and Ba ("Adam", 2015).
struct AdamWOptions {
  double beta1 = 0.9;         // decay of the mean of gradients
  double beta2 = 0.95;        // decay of the mean of their squares
  double epsilon = 1e-8;      // added to the root, against division by 0
  double weight_decay = 0.1;  // fraction of a weight, times the learning rate, that a step removes
};

// The state of some parameters: four arrays of equal length that do not overlap. The moments are zero
// before the first update and belong to the caller.
template <typename T>
struct AdamWSpan {
  std::span<T> parameters;
  std::span<const T> gradients;
  std::span<T> first_moment;
  std::span<T> second_moment;
};

// One update in place. The gradient used is gradients * gradient_scale, which holds the division by the
// tokens and the clipping. `step` counts from 1. `decay`: whether these parameters take weight decay.
// Everything is computed in the type of the state, with the options rounded to it.
void adamw_update(const AdamWSpan<float>& state, const AdamWOptions& options, int64_t step,
                  double learning_rate, double gradient_scale, bool decay);
void adamw_update(const AdamWSpan<double>& state, const AdamWOptions& options, int64_t step,
                  double learning_rate, double gradient_scale, bool decay);

}  // namespace hdt::training
