// optimizer_test.cc: AdamW against the formula in double, and the learning-rate schedule.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "training/engine/adamw.h"
#include "training/engine/learning_rate.h"

namespace hdt::training {
namespace {

TEST(AdamWTest, FollowsTheFormula) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const AdamWOptions options;
  const size_t count = 37;
  std::vector<float> parameters(count), gradients(count), first(count), second(count);
  for (float& value : parameters) value = normal(random);
  std::vector<double> p(parameters.begin(), parameters.end()), m(count), v(count);
  for (int step = 1; step <= 20; ++step) {
    for (float& value : gradients) value = 100 * normal(random);
    adamw_update({parameters, gradients, first, second}, options, step, 0.01F, 0.01F, true);
    for (size_t i = 0; i < count; ++i) {
      const double g = gradients[i] * 0.01;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, step));
      const double v_hat = v[i] / (1 - std::pow(0.95, step));
      p[i] -= 0.01 * (m_hat / (std::sqrt(v_hat) + 1e-8) + 0.1 * p[i]);
      EXPECT_NEAR(parameters[i], p[i], 1e-4) << "step " << step << ", element " << i;
    }
  }
}

TEST(AdamWTest, DecayOnlyWhereAsked) {
  std::vector<float> with = {1}, without = {1}, gradient = {0}, m1 = {0}, v1 = {0}, m2 = {0}, v2 = {0};
  adamw_update({with, gradient, m1, v1}, {}, 1, 0.1F, 1, true);
  adamw_update({without, gradient, m2, v2}, {}, 1, 0.1F, 1, false);
  EXPECT_FLOAT_EQ(with[0], 0.99F);
  EXPECT_EQ(without[0], 1.0F);
}

TEST(LearningRateTest, WarmsUpThenFallsToTheMinimum) {
  const LearningRateOptions options{.peak = 1.0, .minimum = 0.1, .warmup_steps = 4, .total_steps = 104};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3), 1.0);
  EXPECT_NEAR(learning_rate(options, 53), 0.55, 1e-12);  // half of the cosine
  EXPECT_NEAR(learning_rate(options, 103), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(options, 1000), 0.1, 1e-12);
  for (int64_t step = 4; step < 103; ++step)
    EXPECT_GT(learning_rate(options, step), learning_rate(options, step + 1));
}

TEST(LearningRateTest, DecaysOnALineOrNotAtAll) {
  LearningRateOptions options{.peak = 1.0, .minimum = 0.2, .warmup_steps = 2, .total_steps = 12};
  options.decay = LearningRateDecay::kLinear;
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 6), 0.6);  // half of the way
  EXPECT_DOUBLE_EQ(learning_rate(options, 11), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(options, 50), 0.2);
  options.decay = LearningRateDecay::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 50), 1.0);
  for (const char* name : {"cosine", "linear", "constant"})
    EXPECT_STREQ(learning_rate_decay_name(learning_rate_decay_of(name).value()), name);
  EXPECT_EQ(learning_rate_decay_of("step").status().message(),
            "'step' given, expected cosine, linear or constant");
}

}  // namespace
}  // namespace hdt::training
