// interleaved_test.cc: with several ranges of layers on a stage, training is to the last bit what it is with
// one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"
#include "training/engine/evaluation.h"
#include "training/engine/generator.h"

namespace hdt::training::testing {
namespace {

constexpr int kLayers = 7;
constexpr int64_t kInterleavedSteps = 8;
const FakeShape kShape{.num_layers = kLayers, .padding = 3};

// Without clipping, as the square norm is summed in another order where ranks hold other units.
TrainerOptions interleaved_run() {
  TrainerOptions result;
  result.seed = 7;
  result.learning_rate = {
      .peak = 0.02, .minimum = 0.002, .warmup_steps = 2, .total_steps = kInterleavedSteps};
  result.clip_gradient_norm = 0;
  result.bucket_elements = 100;  // several buckets a rank
  result.schedule = ScheduleKind::kInterleaved;
  return result;
}

// Every replica on one stage: the same samples and the same sums.
std::vector<Replica> without_chunks(std::vector<Replica> replicas) {
  for (Replica& replica : replicas) {
    replica.stage_layers = {kLayers};
    replica.chunks = 1;
  }
  return replicas;
}

std::string in_words(const std::vector<Replica>& replicas) {
  std::string text;
  for (const Replica& replica : replicas)
    text += fmt::format("[{}] in {} chunks, {} x {}; ", fmt::join(replica.stage_layers, " "), replica.chunks,
                        replica.num_micro_batches, replica.micro_batch_size);
  return text;
}

// A split of the layers over `parts` virtual stages, each with one at least.
std::vector<int> split_into(int parts, std::mt19937& random) {
  std::vector<int> split(static_cast<size_t>(parts), 1);
  for (int left = kLayers - parts; left > 0; --left)
    ++split[std::uniform_int_distribution<size_t>(0, split.size() - 1)(random)];
  return split;
}

Replica random_replica(std::mt19937& random) {
  const auto between = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const int stages = between(1, 3);
  const int chunks = stages == 1 ? 1 : between(1, kLayers / stages);
  return {split_into(stages * chunks, random), between(1, 3), stages * between(1, 4), chunks};
}

void expect_bits_of_one_stage(const std::vector<Replica>& replicas, std::mt19937& random) {
  for (const RankOrder order : {RankOrder::kTpDpPp, RankOrder::kTpPpDp}) {
    const Layout layout(kLayers, replicas, order);
    TrainerOptions with = interleaved_run();
    with.bucket_elements = std::vector<size_t>{1, 100, 250, 1'000'000}[random() % 4];
    const RunResult flat =
        train(Layout(kLayers, without_chunks(replicas), order), kShape, kInterleavedSteps, with);
    for (const bool sharded : {false, true}) {
      if (sharded) with.shards = random_shards(layout, random);
      SCOPED_TRACE(fmt::format("{}order {}, buckets of {}, weights {}", in_words(replicas),
                               static_cast<int>(order), with.bucket_elements,
                               fmt::join(with.shards.weights, " ")));
      const RunResult run = train(layout, kShape, kInterleavedSteps, with);
      ASSERT_EQ(run.steps.size(), flat.steps.size());
      for (size_t step = 0; step < run.steps.size(); ++step) {
        // The losses of last stages are summed in the order of ranks, which is another one.
        EXPECT_DOUBLE_EQ(run.steps[step].loss, flat.steps[step].loss);
        EXPECT_EQ(run.steps[step].tokens, flat.steps[step].tokens);
      }
      EXPECT_EQ(run.parameters, flat.parameters);
    }
    EXPECT_LT(flat.steps.back().loss, 0.98 * flat.steps.front().loss);  // it did learn
  }
}

TEST(Interleaved, UnequalChunksMakeTheBitsOfOneStage) {
  std::mt19937 random(1);
  const std::vector<std::vector<Replica>> table = {
      {{{1, 2, 1, 3}, 2, 4, 2}},
      {{{1, 1, 1, 1, 1, 2}, 1, 6, 2}},
      {{{1, 1, 2, 1, 1, 1}, 2, 2, 3}},
      // Two chunks beside one.
      {{{1, 2, 1, 3}, 2, 4, 2}, {{4, 3}, 2, 3}},
      {{{1, 2, 1, 3}, 2, 4, 2}, {{7}, 3, 2}},
      {{{3, 1, 2, 1}, 1, 2, 2}, {{1, 2, 3, 1}, 2, 4, 2}},
      {{{2, 1, 1, 1, 1, 1}, 1, 6, 2}, {{7}, 2, 2}, {{1, 1, 1, 1, 2, 1}, 1, 4, 3}},
  };
  for (const std::vector<Replica>& replicas : table) expect_bits_of_one_stage(replicas, random);
}

TEST(Interleaved, RandomLayoutsMakeTheBitsOfOneStage) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(fmt::format("HDT_TEST_SEED={}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 12 && !::testing::Test::HasFailure(); ++round) {
    // Sums over more than two replicas are the same bits, too: members are added in the order of replicas.
    std::vector<Replica> replicas(1 + random() % 3);
    for (Replica& replica : replicas) replica = random_replica(random);
    expect_bits_of_one_stage(replicas, random);
  }
}

const FakeShape kShapeInBf16{.num_layers = kLayers, .padding = 3, .type = NumberType::kBFloat16};

// Every virtual stage on a rank of its own. Activations in bf16 are rounded where a virtual stage ends, so
// one stage would make other bits.
std::vector<Replica> as_many_stages(std::vector<Replica> replicas) {
  for (Replica& replica : replicas) replica.chunks = 1;
  return replicas;
}

// Two chunks beside one, all of them unequal.
const std::vector<Replica> kTwoBesideOne = {{{1, 2, 1, 3}, 2, 4, 2}, {{4, 3}, 2, 3}};

TEST(Interleaved, ChunksInBf16MakeTheBitsOfAsManyStages) {
  const Layout layout(kLayers, kTwoBesideOne, RankOrder::kTpPpDp);
  for (const NumberType gradients : {NumberType::kBFloat16, NumberType::kFloat32}) {
    TrainerOptions with = interleaved_run();
    with.gradients = gradients;
    const RunResult flat = train(Layout(kLayers, as_many_stages(kTwoBesideOne), RankOrder::kTpPpDp),
                                 kShapeInBf16, kInterleavedSteps, with);
    EXPECT_LT(flat.steps.back().loss, 0.98 * flat.steps.front().loss);
    for (const ShardOptions& shards : {ShardOptions(), ShardOptions{true, {1, 2, 0, 3}}}) {
      SCOPED_TRACE(fmt::format("gradients in {}, {}", number_type_name(gradients),
                               shards.sharded ? "sharded" : "whole"));
      with.shards = shards;
      const RunResult run = train(layout, kShapeInBf16, kInterleavedSteps, with);
      ASSERT_EQ(run.steps.size(), flat.steps.size());
      for (size_t step = 0; step < run.steps.size(); ++step)
        EXPECT_DOUBLE_EQ(run.steps[step].loss, flat.steps[step].loss);
      EXPECT_EQ(run.parameters, flat.parameters);
    }
  }
}

// The model is used without learning: the result is a loss, and a text from each replica.
struct Use {
  double loss = 0;
  std::vector<std::vector<int64_t>> texts;
};

Use use_in_bf16(const Layout& layout) {
  ThreadWorld world(layout);
  Use result;
  result.texts.resize(layout.num_replicas());
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(kShapeInBf16, layout, rank);
    const auto messenger = world.messenger(rank);
    const auto trainer =
        make_trainer(layout, kShapeInBf16.vocab, chunks.computes(), *messenger, interleaved_run());
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    auto evaluator = Evaluator::create(layout, chunks.computes(), *messenger);
    ASSERT_TRUE(evaluator.is_ok()) << evaluator.status().message();
    const auto evaluated =
        evaluator.value()->evaluate(2, [](int64_t batch, int64_t index, std::span<int64_t> tokens) {
          synthetic_sample(kShapeInBf16.vocab, batch, index, tokens);
        });
    ASSERT_TRUE(evaluated.is_ok()) << evaluated.status().message();
    if (rank == 0) result.loss = evaluated.value().loss;
    // Longer than the context.
    const std::vector<int64_t> prompt = {1, 2};
    const auto text = generate(layout, chunks.computes(), *messenger, prompt,
                               {.tokens = 20, .sampling = {.temperature = 1}, .seed = 5});
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    const Position position = layout.position_of(rank);
    if (position.stage == 0) result.texts[position.replica] = text.value();
  });
  return result;
}

TEST(Interleaved, EvaluationAndTextInBf16AreThoseOfAsManyStages) {
  const Use use = use_in_bf16(Layout(kLayers, kTwoBesideOne, RankOrder::kTpPpDp));
  const Use flat = use_in_bf16(Layout(kLayers, as_many_stages(kTwoBesideOne), RankOrder::kTpPpDp));
  EXPECT_GT(flat.loss, 1);
  EXPECT_DOUBLE_EQ(use.loss, flat.loss);
  ASSERT_EQ(flat.texts[0].size(), 20U);
  EXPECT_EQ(use.texts, flat.texts);
}

// The reason why a layout cannot be trained with a schedule.
std::string refusal(const Replica& replica, ScheduleKind schedule) {
  const Layout layout(kLayers, {replica}, RankOrder::kTpPpDp);
  ThreadWorld world(layout);
  const auto messenger = world.messenger(0);
  const FakeChunks chunks(kShape, layout, 0);
  TrainerOptions with = interleaved_run();
  with.schedule = schedule;
  const auto trainer = make_trainer(layout, kShape.vocab, chunks.computes(), *messenger, with);
  EXPECT_FALSE(trainer.is_ok());
  EXPECT_EQ(trainer.status().code(), Code::kInvalidArgument);
  return trainer.status().message();
}

TEST(Interleaved, LayoutsThatCannotBeRunAreRefused) {
  EXPECT_EQ(refusal({{1, 2, 1, 3}, 1, 4, 2}, ScheduleKind::kOneForwardOneBackward),
            "schedule 1f1b: a stage has 2 chunks of the model, expected 1; several need interleaved");
  EXPECT_EQ(refusal({{3, 4}, 1, 4, 2}, ScheduleKind::kInterleaved),
            "schedule interleaved: 2 chunks on one stage, expected at least 2 stages");
  EXPECT_THAT(refusal({{1, 2, 1, 3}, 1, 5, 2}, ScheduleKind::kInterleaved),
              ::testing::HasSubstr("expected a multiple of the 2 stages: 1 left over"));
}

}  // namespace
}  // namespace hdt::training::testing
