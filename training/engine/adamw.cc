// adamw.cc: the update, one pass over memory. It is written so that compilers vectorise the loop: no
// aliases (__restrict) and no branches.
#include "training/engine/adamw.h"

#include <cmath>
#include <cstddef>

namespace hdt::training {

void adamw_update(const AdamWSpan& state, const AdamWOptions& options, int64_t step, float learning_rate,
                  float gradient_scale, bool decay) {
  // The bias corrections 1 - beta^step are computed in double, as they cancel in float for early steps.
  // They are folded into two factors, so the loop has no division for them.
  const auto exponent = static_cast<double>(step);
  const auto correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(options.beta1), exponent));
  const auto correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(options.beta2), exponent));
  const float step_size = learning_rate / correction1;
  const float root_scale = 1.0F / std::sqrt(correction2);
  const float keep = decay ? 1.0F - learning_rate * options.weight_decay : 1.0F;
  float* __restrict parameters = state.parameters.data();
  const float* __restrict gradients = state.gradients.data();
  float* __restrict first = state.first_moment.data();
  float* __restrict second = state.second_moment.data();
  const size_t count = state.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * gradient_scale;
    first[i] = options.beta1 * first[i] + (1.0F - options.beta1) * gradient;
    second[i] = options.beta2 * second[i] + (1.0F - options.beta2) * gradient * gradient;
    parameters[i] =
        parameters[i] * keep - step_size * first[i] / (std::sqrt(second[i]) * root_scale + options.epsilon);
  }
}

}  // namespace hdt::training
