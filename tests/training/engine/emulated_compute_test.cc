// emulated_compute_test.cc: a device that is not there takes at least the time that it should.
#include "training/engine/emulated_compute.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "training/engine/tensor_info.h"

namespace hdt::training::testing {
namespace {

const std::vector<EmulatedUnit> kUnits = {
    {.forward = .001, .input_gradient = .002, .weight_gradient = .003, .parameters = 5, .output_elements = 7},
    {.forward = .004,
     .input_gradient = .005,
     .weight_gradient = .006,
     .parameters = 9,
     .output_elements = 11}};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST(EmulatedCompute, TakesAtLeastTheTimeOfItsUnits) {
  const auto stage = make_emulated_compute(2, kUnits, {.output_elements = 3});
  EXPECT_EQ(stage->units(), (UnitRange{2, 4}));
  EXPECT_EQ(elements_of(stage->tensors(2)), 5U);
  EXPECT_EQ(elements_of(stage->tensors(3)), 9U);
  EXPECT_EQ(stage->activation_elements(1, 4), 12U);
  EXPECT_EQ(stage->activation_elements(3, 4), 44U);
  const std::vector<int64_t> samples(4);
  std::vector<float> output(22);
  const Stopwatch forward;
  const LossSum passed_on = stage->forward(0, {.samples = samples}, {}, output);
  EXPECT_GE(forward.seconds(), .005);
  EXPECT_EQ(passed_on.tokens, 0);
  EXPECT_EQ(stage->forward(0, {.samples = samples}, {}, {}).tokens, 2);  // the last stage counts

  std::vector<std::pair<int, double>> done;
  const Stopwatch backward;
  stage->backward(0, {}, {}, [&](int unit) { done.emplace_back(unit, backward.seconds()); });
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].first, 3);
  EXPECT_GE(done[0].second, .011);
  EXPECT_EQ(done[1].first, 2);
  EXPECT_GE(done[1].second, .016);

  const Stopwatch input_part;
  stage->backward_input(0, {}, {});
  EXPECT_GE(input_part.seconds(), .007);
  const Stopwatch weight_part;
  stage->backward_weights(0, [](int) {});
  EXPECT_GE(weight_part.seconds(), .009);
}

// The device begins a unit when its parameters are there: what they take is added to the time of the units
// that follow.
TEST(EmulatedCompute, WaitsForTheParametersOfItsUnits) {
  const auto stage = make_emulated_compute(2, kUnits, {.output_elements = 3});
  const std::vector<int64_t> samples(4);
  std::vector<int> needed;
  const Stopwatch forward;
  stage->forward(0,
                 {.samples = samples,
                  .unit_needed =
                      [&](int unit) {
                        needed.push_back(unit);
                        if (unit == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
                      }},
                 {}, {});
  EXPECT_GE(forward.seconds(), .020 + kUnits[1].forward);
  EXPECT_EQ(needed, (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace hdt::training::testing
