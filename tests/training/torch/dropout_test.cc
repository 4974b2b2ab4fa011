// dropout_test.cc: dropout that does not depend on the layout, and samples of several documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/training/torch/small_stage.h"

namespace hdt::training::testing {
namespace {

ModelShape shape_of(ModelFamily family) {
  ModelShape shape = small_shape();
  shape.family = family;
  return shape;
}

// The embedding alone, with a table of ones, shows which elements are dropped.
std::vector<float> dropped_ones(const DropoutRates& rates, const MicroBatch& batch) {
  const ModelShape shape = small_shape();
  Stage stage(shape, {0, 1}, 1, {.dropout = rates});
  std::ranges::fill(stage.parameters[0], 1.0F);
  std::vector<float> output(stage.compute->activation_elements(
      0, batch.samples.size() / (shape.sequence_length + 1) * shape.sequence_length));
  stage.compute->forward(0, batch, {}, output);
  return output;
}

TEST(DropoutTest, DropsTheShareAndKeepsTheMean) {
  const ModelShape shape = small_shape();
  const std::vector<int64_t> tokens = samples(shape, 40);
  for (const double rate : {0.1, 0.5, 0.9}) {
    const std::vector<float> values = dropped_ones({0, rate, 1}, {0, 0, tokens});
    const auto elements = static_cast<double>(values.size());
    const auto kept = static_cast<float>(1 / (1 - rate));
    const auto zeros = std::ranges::count(values, 0.0F);
    // Five standard deviations of a binomial distribution; the numbers are always the same.
    EXPECT_NEAR(static_cast<double>(zeros), rate * elements, 5 * std::sqrt(rate * (1 - rate) * elements));
    EXPECT_EQ(zeros + std::ranges::count(values, kept), static_cast<int64_t>(values.size()));
  }
}

TEST(DropoutTest, FollowsFromSeedStepAndSample) {
  const ModelShape shape = small_shape();
  const std::vector<int64_t> tokens = samples(shape, 1);
  const DropoutRates rates = {0, 0.5, 1};
  std::set<std::vector<float>> masks;
  for (const uint64_t seed : {1U, 2U}) {
    for (const int64_t step : {0, 1}) {
      for (const int64_t sample : {0, 1, 2})
        masks.insert(dropped_ones({0, 0.5, seed}, {step, sample, tokens}));
    }
  }
  EXPECT_EQ(masks.size(), 12U);
  EXPECT_EQ(dropped_ones(rates, {0, 1, tokens}), dropped_ones(rates, {0, 1, tokens}));
  // A sample's mask is the same at the second place of a micro-batch as alone.
  const std::vector<int64_t> two = samples(shape, 2);
  const std::vector<float> both = dropped_ones(rates, {3, 6, two});
  const std::vector<float> second = dropped_ones(rates, {3, 7, tokens});
  EXPECT_TRUE(
      std::equal(second.begin(), second.end(), both.begin() + static_cast<std::ptrdiff_t>(second.size())));
}

TEST(DropoutTest, AnEvaluationDropsNothing) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    const ModelShape shape = shape_of(family);
    const std::vector<int64_t> tokens = samples(shape, 2);
    Stage with(shape, {0, 6}, 1, {.dropout = {0.3, 0.3, 1}});
    Stage without(shape, {0, 6}, 1);
    const double loss = without.compute->forward(0, {.samples = tokens}, {}, {}).loss;
    EXPECT_EQ(with.compute->evaluate(tokens, {}, {}).loss, loss);
    EXPECT_NE(with.compute->forward(0, {.samples = tokens}, {}, {}).loss, loss);
  }
}

std::vector<double> losses(const ModelShape& shape, const Layout& layout, const DropoutRates& dropout) {
  ThreadWorld world(layout);
  std::vector<double> result;
  TrainerOptions options;
  options.seed = 11;
  options.learning_rate = {.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 1, .total_steps = 8};
  run_ranks(layout.world_size(), [&](int rank) {
    const auto compute =
        make_torch_stage(shape, layout.units_of(layout.position_of(rank)), {.dropout = dropout});
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab_size, *compute, *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < 8; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      if (rank == 0) result.push_back(done.value().loss);
    }
  });
  return result;
}

// Dropout, and documents, on unequal stages and replicas as in one process.
TEST(DropoutTest, UnequalLayoutsTrainAsOneProcess) {
  set_torch_threads(1);
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    ModelShape shape = shape_of(family);
    // A token that is in nearly every sample: stages in the middle must know of it, too.
    shape.positions_reset_after = shape.attention_reset_after = 4;
    for (const DropoutRates dropout : {DropoutRates{0.2, 0.1, 5}, DropoutRates{}}) {
      const std::vector<double> one = losses(shape, Layout(4, {{{4}, 16, 1}}, RankOrder::kTpDpPp), dropout);
      ASSERT_EQ(one.size(), 8U);
      for (const Layout& layout : {Layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp),
                                   Layout(4, {{{1, 2, 1}, 2, 5}, {{4}, 1, 6}}, RankOrder::kTpPpDp)}) {
        const std::vector<double> unequal = losses(shape, layout, dropout);
        ASSERT_EQ(unequal.size(), 8U);
        for (size_t step = 0; step < 8; ++step)
          EXPECT_NEAR(unequal[step], one[step], 1e-5 * one[step]) << "step " << step;
      }
    }
  }
}

// Two documents of 8 tokens in a sample of 16 have the loss, and the gradients, that they have in samples of
// their own.
TEST(DocumentsTest, ADocumentIsComputedAsIfItWereAlone) {
  constexpr int64_t kEnd = 28;
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    ModelShape together = shape_of(family);
    together.max_position_embeddings = together.sequence_length;
    together.masked_after = together.positions_reset_after = together.attention_reset_after = kEnd;
    ModelShape alone = together;
    alone.sequence_length = 8;
    alone.positions_reset_after = alone.attention_reset_after = -1;
    // 7 tokens and their end, twice, and the last target.
    const std::vector<int64_t> tokens = {3, 1, 4, 1, 5, 9, 2, kEnd, 6, 5, 3, 5, 8, 9, 7, kEnd, 2};
    const std::vector<int64_t> first(tokens.begin(), tokens.begin() + 9);
    const std::vector<int64_t> second(tokens.begin() + 8, tokens.end());
    Stage whole(together, {0, 6}, 1);
    Stage parts(alone, {0, 6}, 1);
    const LossSum loss = whole.compute->forward(0, {.samples = tokens}, {}, {});
    whole.compute->backward(0, {}, {}, [](int) {});
    double sum = 0;
    for (const std::vector<int64_t>* part : {&first, &second}) {
      sum += parts.compute->forward(0, {.samples = *part}, {}, {}).loss;
      parts.compute->backward(0, {}, {}, [](int) {});
    }
    EXPECT_EQ(loss.tokens, 14);
    EXPECT_NEAR(loss.loss, sum, 1e-5 * sum);
    for (int unit = 0; unit < 6; ++unit) {
      for (size_t i = 0; i < whole.gradients[unit].size(); ++i)
        ASSERT_NEAR(whole.gradients[unit][i], parts.gradients[unit][i], 1e-4) << "unit " << unit << ", " << i;
    }
    // Either of the two alone is not enough. (Rotary positions are relative: within one document they are the
    // same, wherever the count begins.)
    for (int64_t ModelShape::*const reset :
         {&ModelShape::positions_reset_after, &ModelShape::attention_reset_after}) {
      if (family == ModelFamily::kLlama && reset == &ModelShape::positions_reset_after) continue;
      ModelShape half = together;
      half.*reset = -1;
      Stage other(half, {0, 6}, 1);
      EXPECT_GT(std::abs(other.compute->forward(0, {.samples = tokens}, {}, {}).loss - sum), 1e-4 * sum);
    }
  }
}

// Where attention crosses the border, it does matter for rotary positions.
TEST(DocumentsTest, PositionsThatBeginAgainChangeRotations) {
  ModelShape shape = shape_of(ModelFamily::kLlama);
  const std::vector<int64_t> tokens = samples(shape, 1);
  Stage counted(shape, {0, 6}, 1);
  shape.positions_reset_after = tokens[5];
  Stage again(shape, {0, 6}, 1);
  EXPECT_NE(again.compute->forward(0, {.samples = tokens}, {}, {}).loss,
            counted.compute->forward(0, {.samples = tokens}, {}, {}).loss);
}

}  // namespace
}  // namespace hdt::training::testing
