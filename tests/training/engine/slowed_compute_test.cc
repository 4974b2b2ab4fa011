// slowed_compute_test.cc: an emulated slow device computes the same, and takes at least as long as it says.
#include "training/engine/slowed_compute.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <utility>
#include <vector>

#include "tests/training/engine/fake_compute.h"

namespace hdt::training::testing {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The whole model in one stage, forward and backward of one micro-batch.
struct Outcome {
  std::vector<float> gradients;
  std::vector<int> needed;  // units, in the order in which their parameters were asked for
  std::vector<int> order;   // in which units were done
  double loss = 0;
  std::vector<std::vector<float>> memory;  // that the stage is bound to
};

Outcome run_once(StageCompute& compute, bool split = false) {
  Outcome result;
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> gradients;
  for (int unit = compute.units().first; unit < compute.units().end; ++unit) {
    parameters.emplace_back(elements_of(compute.tensors(unit)));
    gradients.emplace_back(elements_of(compute.tensors(unit)));
    compute.bind(unit, parameters.back(), gradients.back());
    compute.initialize(unit, 7);
  }
  std::vector<int64_t> samples(compute.sequence_length() + 1, 3);
  const auto needed = [&](int unit) { result.needed.push_back(unit); };
  result.loss = compute.forward(0, {.samples = samples, .unit_needed = needed}, {}, {}).loss;
  const auto done = [&](int unit) { result.order.push_back(unit); };
  if (split) {
    compute.backward_input(0, {}, {});
    compute.backward_weights(0, done);
  } else {
    compute.backward(0, {}, {}, done);
  }
  for (const std::vector<float>& unit : gradients)
    result.gradients.insert(result.gradients.end(), unit.begin(), unit.end());
  for (std::vector<float>& unit : gradients) result.memory.push_back(std::move(unit));
  for (std::vector<float>& unit : parameters) result.memory.push_back(std::move(unit));
  return result;
}

TEST(SlowedCompute, ComputesTheSameAndTakesLonger) {
  const FakeShape shape{6, 64, 200, 32};
  const UnitRange all{0, shape.num_layers + 2};
  FakeCompute plain(shape, all);
  const Outcome expected = run_once(plain);
  constexpr double kFactor = 4;
  const auto slowed = make_slowed_compute(std::make_unique<FakeCompute>(shape, all), kFactor);
  std::vector<int64_t> samples(shape.sequence_length + 1, 3);
  Outcome same;  // it holds the memory that the stage is bound to
  for (const bool split : {false, true}) {
    same = run_once(*slowed, split);
    EXPECT_EQ(same.loss, expected.loss);
    EXPECT_EQ(same.gradients, expected.gradients);
    EXPECT_EQ(same.order, expected.order);
    EXPECT_EQ(same.needed, expected.needed);
  }
  EXPECT_TRUE(slowed->has_split_backward());

  // By construction, on any machine: what passes is no less than the factor times what was computed. The
  // thread's own clock is read outside, so a little more of it is counted than by the slowed stage: half of
  // the factor is demanded.
  const auto begin = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  slowed->forward(0, {.samples = samples}, {}, {});
  const double used = cpu_seconds() - cpu;
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
            kFactor / 2 * used);
}

}  // namespace
}  // namespace hdt::training::testing
