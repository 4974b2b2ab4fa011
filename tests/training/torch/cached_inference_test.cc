// cached_inference_test.cc: logits and text with keys and values that are kept are those of whole forward
// passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/training/engine/training_run.h"
#include "tests/training/torch/small_stage.h"
#include "training/engine/generator.h"

namespace hdt::training::testing {
namespace {

// LLaMA with grouped queries and with a scaled rotary embedding, and GPT-2 with positions beyond the context.
std::vector<ModelShape> shapes() {
  ModelShape llama = small_shape();
  llama.num_query_groups = 2;
  llama.rope_scaling = {RopeScalingKind::kLlama3, 4, 1, 4, 16};
  ModelShape gpt2 = small_shape();
  gpt2.family = ModelFamily::kGpt2;
  gpt2.max_position_embeddings = gpt2.sequence_length + 3;
  return {small_shape(), llama, gpt2};
}

// Away from the flat start values, so that attention attends to something.
void sharpen(std::span<float> values) {
  for (float& value : values) value *= 4;
}

std::vector<float> logits_of(TextCompute& compute, std::span<const int64_t> tokens, int64_t position) {
  std::vector<float> logits(compute.vocab_size());
  compute.infer(tokens, position, {}, {}, logits);
  return logits;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::abs(logit));
  ASSERT_GT(largest, 0.01F);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-5F * std::max(largest, 1.0F)) << i;
}

TEST(CachedInferenceTest, LogitsAreThoseOfTheWholeForward) {
  for (const ModelShape& shape : shapes()) {
    Stage whole(shape, {0, 6}, 1);
    Stage cached(shape, {0, 6}, 1);
    for (Stage* stage : {&whole, &cached})
      for (auto& unit : stage->parameters) sharpen(unit);
    const std::vector<int64_t> tokens = samples(shape, 1);
    const std::span<const int64_t> text = std::span(tokens).first(shape.sequence_length);
    // A prompt, then pieces of one token and of several, up to the whole context.
    for (const int64_t piece : {1, 2, 5}) {
      int64_t position = 0;
      for (int64_t next = 3; position < shape.sequence_length; next = piece) {
        const int64_t count = std::min(next, shape.sequence_length - position);
        const auto got = logits_of(*cached.compute, text.subspan(position, count), position);
        position += count;
        expect_near(got, logits_of(*whole.compute, text.first(position), 0));
      }
    }
  }
}

TEST(CachedInferenceTest, ATextMayGoOnFromAnEarlierPlace) {
  for (const ModelShape& shape : shapes()) {
    Stage stage(shape, {0, 6}, 1);
    for (auto& unit : stage.parameters) sharpen(unit);
    std::vector<int64_t> tokens = samples(shape, 1);
    logits_of(*stage.compute, std::span(tokens).first(10), 0);
    for (int64_t i = 4; i < 8; ++i) tokens[i] = (tokens[i] + 1) % shape.vocab_size;
    const auto got = logits_of(*stage.compute, std::span(tokens).subspan(4, 4), 4);
    expect_near(got, logits_of(*stage.compute, std::span(tokens).first(8), 0));
  }
}

std::vector<int64_t> text_from(const ModelShape& shape, const Layout& layout, std::span<const int64_t> prompt,
                               int count) {
  ThreadWorld world(layout);
  std::vector<std::vector<int64_t>> texts(layout.world_size());
  run_ranks(layout.world_size(), [&](int rank) {
    Stage stage(shape, layout.units_of(layout.position_of(rank)), 1);
    for (auto& unit : stage.parameters) sharpen(unit);
    const auto messenger = world.messenger(rank);
    Result<std::vector<int64_t>> text = generate(layout, *stage.compute, *messenger, prompt,
                                                 {.tokens = count, .sampling = {.temperature = 0}});
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    texts[rank] = text.take();
  });
  return texts[0];
}

// Also past the context, where the window moves.
TEST(CachedInferenceTest, TextIsThatWithoutACacheWhateverTheStages) {
  for (const ModelShape& shape : shapes()) {
    const auto context = static_cast<size_t>(shape.sequence_length);
    Stage stage(shape, {0, 6}, 1);
    for (auto& unit : stage.parameters) sharpen(unit);
    std::vector<int64_t> tokens = {3, 1, 4};
    const std::vector<int64_t> prompt = tokens;
    const auto count = static_cast<int>(context) + 5;
    for (int i = 0; i < count; ++i) {
      const auto window = std::span(tokens).last(std::min(tokens.size(), context));
      const auto logits = logits_of(*stage.compute, window, 0);
      tokens.push_back(std::ranges::max_element(logits) - logits.begin());
    }
    const std::vector<int64_t> expected(tokens.begin() + 3, tokens.end());
    EXPECT_EQ(text_from(shape, Layout(4, {{{4}}}, RankOrder::kTpDpPp), prompt, count), expected);
    EXPECT_EQ(text_from(shape, Layout(4, {{{1, 2, 1}}}, RankOrder::kTpDpPp), prompt, count), expected);
  }
}

}  // namespace
}  // namespace hdt::training::testing
