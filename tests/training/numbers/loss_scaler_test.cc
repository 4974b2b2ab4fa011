// loss_scaler_test.cc: the schedule of the loss scale against a plain model of Megatron's, and its ends.
#include "training/numbers/loss_scaler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace hdt::training {
namespace {

// DynamicGradScaler of Megatron-LM, line by line.
struct PlainScaler {
  double scale, minimum;
  int64_t window, hysteresis, good = 0, left = hysteresis;
  void update(bool overflow) {
    if (overflow) {
      good = 0;
      left -= 1;
      if (left <= 0) scale = std::max(scale * 0.5, minimum);
    } else {
      good += 1;
      if (good == window) {
        good = 0;
        left = hysteresis;
        scale = scale * 2;
      }
    }
  }
};

TEST(LossScalerTest, FollowsMegatronsSchedule) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int grown = 0;
  int fallen = 0;
  for (int round = 0; round < 200; ++round) {
    LossScaleOptions options;
    options.initial = 65536;
    options.window = 1 + static_cast<int64_t>(random() % 8);
    options.hysteresis = 1 + static_cast<int64_t>(random() % 4);
    LossScaler scaler(options);
    PlainScaler plain{options.initial, options.minimum, options.window, options.hysteresis};
    for (int step = 0; step < 100; ++step) {
      const bool overflow = random() % 4 == 0;
      // The plain one stays at its minimum for ever.
      const bool can_fall = plain.scale > plain.minimum || plain.left > 1;
      const double before = plain.scale;
      if (overflow) {
        ASSERT_EQ(scaler.overflowed(), can_fall);
        if (!can_fall) break;
      } else {
        scaler.succeeded();
      }
      plain.update(overflow);
      ASSERT_EQ(scaler.scale(), plain.scale) << "step " << step;
      grown += plain.scale > before ? 1 : 0;
      fallen += plain.scale < before ? 1 : 0;
      // At any step the state is all that a run needs to go on.
      if (random() % 5 == 0) {
        LossScaler other(options);
        other.restore(scaler.state());
        ASSERT_EQ(other.state(), scaler.state());
        scaler = other;
      }
    }
  }
  EXPECT_GT(grown, 100);
  EXPECT_GT(fallen, 100);
}

TEST(LossScalerTest, EndsAtTheMinimum) {
  LossScaler scaler({.initial = 4, .minimum = 1.5, .hysteresis = 2});
  EXPECT_TRUE(scaler.overflowed());
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_TRUE(scaler.overflowed());
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_TRUE(scaler.overflowed());
  EXPECT_EQ(scaler.scale(), 1.5);
  const LossScaleState state = scaler.state();
  EXPECT_FALSE(scaler.overflowed());
  EXPECT_EQ(scaler.state(), state);
}

TEST(LossScalerTest, AConstantScaleStays) {
  LossScaler scaler({.constant = 128, .window = 1});
  scaler.succeeded();
  scaler.restore({.scale = 7, .good_steps = 3, .hysteresis_left = 1});
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_FALSE(scaler.overflowed());
}

}  // namespace
}  // namespace hdt::training
