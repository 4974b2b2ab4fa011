// adamw.cc: the update, one pass over memory. It is written so that compilers vectorise the loop: no
// aliases (__restrict) and no branches.
#include "training/engine/adamw.h"

#include <cmath>
#include <cstddef>

namespace hdt::training {
namespace {

template <typename T>
void update(const AdamWSpan<T>& state, const AdamWOptions& options, int64_t step, T learning_rate,
            T gradient_scale, bool decay) {
  const auto beta1 = static_cast<T>(options.beta1);
  const auto beta2 = static_cast<T>(options.beta2);
  const auto epsilon = static_cast<T>(options.epsilon);
  const auto weight_decay = static_cast<T>(options.weight_decay);
  // The bias corrections 1 - beta^step are computed in double, as they cancel in float for early steps.
  // They are folded into two factors, so the loop has no division for them.
  const auto exponent = static_cast<double>(step);
  const auto correction1 = static_cast<T>(1.0 - std::pow(double{beta1}, exponent));
  const auto correction2 = static_cast<T>(1.0 - std::pow(double{beta2}, exponent));
  const T step_size = learning_rate / correction1;
  const T root_scale = T{1} / std::sqrt(correction2);
  const T keep = decay ? T{1} - learning_rate * weight_decay : T{1};
  T* __restrict parameters = state.parameters.data();
  const T* __restrict gradients = state.gradients.data();
  T* __restrict first = state.first_moment.data();
  T* __restrict second = state.second_moment.data();
  const size_t count = state.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const T gradient = gradients[i] * gradient_scale;
    first[i] = beta1 * first[i] + (T{1} - beta1) * gradient;
    second[i] = beta2 * second[i] + (T{1} - beta2) * gradient * gradient;
    parameters[i] =
        parameters[i] * keep - step_size * first[i] / (std::sqrt(second[i]) * root_scale + epsilon);
  }
}

}  // namespace

void adamw_update(const AdamWSpan<float>& state, const AdamWOptions& options, int64_t step,
                  double learning_rate, double gradient_scale, bool decay) {
  update(state, options, step, static_cast<float>(learning_rate), static_cast<float>(gradient_scale), decay);
}

void adamw_update(const AdamWSpan<double>& state, const AdamWOptions& options, int64_t step,
                  double learning_rate, double gradient_scale, bool decay) {
  update(state, options, step, learning_rate, gradient_scale, decay);
}

}  // namespace hdt::training
