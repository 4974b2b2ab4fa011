// adamw.h: Adam with decoupled weight decay (Loshchilov and Hutter, 2019) on flat memory.
#pragma once

#include <cstdint>
#include <span>

namespace hdt::training {

struct AdamWOptions {
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float weight_decay = 0.1F;
};

struct AdamWSpan {
  std::span<float> parameters;
  std::span<const float> gradients;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

// One update. The gradient used is gradients * gradient_scale; `step` counts from 1.
void adamw_update(const AdamWSpan& state, const AdamWOptions& options, int64_t step, float learning_rate,
                  float gradient_scale, bool decay);

}  // namespace hdt::training
