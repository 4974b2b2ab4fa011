// generator_test.cc: text from a pipeline is the text from one process.
#include "training/engine/generator.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

std::vector<int64_t> text_from(const Layout& layout, const GenerationOptions& options) {
  ThreadWorld world(layout);
  std::vector<std::vector<int64_t>> texts(layout.world_size());
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(FakeShape(), layout, rank);
    const auto messenger = world.messenger(rank);
    Result<UnitMemory> memory = UnitMemory::create(chunks.computes(), *messenger);
    ASSERT_TRUE(memory.is_ok());
    for (TextCompute* const compute : chunks.computes()) {
      for (const int unit : compute->units().numbers()) compute->initialize(unit, 3);
    }
    const std::array<int64_t, 2> prompt = {1, 2};
    Result<std::vector<int64_t>> text = generate(layout, chunks.computes(), *messenger, prompt, options);
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    texts[rank] = text.take();
  });
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);  // all stages know it
  return texts[0];
}

TEST(GeneratorTest, SameTextWhateverTheStages) {
  for (const double temperature : {0.0, 1.0}) {
    const GenerationOptions options{.tokens = 40, .temperature = temperature, .seed = 5};
    const std::vector<int64_t> one = text_from(Layout(4, {{{4}}}, RankOrder::kTpDpPp), options);
    EXPECT_EQ(one.size(), 40U);  // past the sequence length of the model
    EXPECT_EQ(text_from(Layout(4, {{{2, 1, 1}}}, RankOrder::kTpDpPp), options), one);
    // Two stages with two chunks each.
    const Replica interleaved{{1, 1, 1, 1}, 1, 2, 2};
    EXPECT_EQ(text_from(Layout(4, {interleaved}, RankOrder::kTpDpPp), options), one);
  }
}

TEST(GeneratorTest, DrawsFromTheSoftmax) {
  const std::array<float, 3> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  EXPECT_EQ(sample_token(logits, 1.0, 0.19), 0);
  EXPECT_EQ(sample_token(logits, 1.0, 0.21), 1);
  EXPECT_EQ(sample_token(logits, 1.0, 0.69), 1);
  EXPECT_EQ(sample_token(logits, 1.0, 0.71), 2);
  EXPECT_EQ(sample_token(logits, 0.0, 0.99), 1);
  EXPECT_EQ(sample_token(logits, 0.01, 0.99), 1);  // cold: the likeliest
}

}  // namespace
}  // namespace hdt::training::testing
