// generator_test.cc: text from a pipeline, with what stages keep of it, is the text from one process without.
#include "training/engine/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/training/engine/training_run.h"

namespace hdt::training::testing {
namespace {

const std::vector<int64_t> kPrompt = {1, 2};

void start(StageCompute& compute) {
  for (int unit = compute.units().first; unit < compute.units().end; ++unit) compute.initialize(unit, 3);
}

// Two stages with two chunks each.
Layout interleaved() { return {4, {Replica{{1, 1, 1, 1}, 1, 2, 2}}, RankOrder::kTpDpPp}; }

std::vector<int64_t> text_from(const Layout& layout, std::span<const int64_t> prompt,
                               const GenerationOptions& options) {
  ThreadWorld world(layout);
  std::vector<std::vector<int64_t>> texts(layout.world_size());
  run_ranks(layout.world_size(), [&](int rank) {
    const FakeChunks chunks(FakeShape(), layout, rank);
    const auto messenger = world.messenger(rank);
    Result<UnitMemory> memory = UnitMemory::create(chunks.computes(), *messenger);
    ASSERT_TRUE(memory.is_ok());
    for (TextCompute* const compute : chunks.computes()) start(*compute);
    // Twice, as the second text must know nothing of the first.
    for (int time = 0; time < 2; ++time) {
      Result<std::vector<int64_t>> text = generate(layout, chunks.computes(), *messenger, prompt, options);
      ASSERT_TRUE(text.is_ok()) << text.status().message();
      if (time == 1) {
        EXPECT_EQ(text.value(), texts[rank]);
      }
      texts[rank] = text.take();
    }
  });
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);  // all stages know it
  return texts[0];
}

// The likeliest tokens, each from a text that is computed anew.
std::vector<int64_t> text_without_memory(std::span<const int64_t> prompt, int count) {
  const Layout layout(4, {{{4}}}, RankOrder::kTpDpPp);
  ThreadWorld world(layout);
  FakeCompute compute(FakeShape(), layout.units_of(layout.position_of(0)));
  const auto messenger = world.messenger(0);
  Result<UnitMemory> memory = UnitMemory::create(compute, *messenger);
  EXPECT_TRUE(memory.is_ok());
  start(compute);
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  std::vector<float> logits(compute.vocab_size());
  for (int i = 0; i < count; ++i) {
    const auto window =
        std::span(tokens).last(std::min(tokens.size(), static_cast<size_t>(compute.sequence_length())));
    compute.infer(window, 0, {}, {}, logits);
    tokens.push_back(std::ranges::max_element(logits) - logits.begin());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

TEST(GeneratorTest, SameTextWhateverTheStages) {
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1},
                                   Sampling{.temperature = 1, .top_k = 4, .top_p = 0.8}}) {
    const GenerationOptions options{.tokens = 40, .sampling = sampling, .seed = 5};
    const std::vector<int64_t> one = text_from(Layout(4, {{{4}}}, RankOrder::kTpDpPp), kPrompt, options);
    EXPECT_EQ(one.size(), 40U);  // past the sequence length of the model
    EXPECT_EQ(text_from(Layout(4, {{{2, 1, 1}}}, RankOrder::kTpDpPp), kPrompt, options), one);
    EXPECT_EQ(text_from(interleaved(), kPrompt, options), one);
  }
}

// Prompts that are shorter than the context, as long, and longer; the text leaves the context, too.
TEST(GeneratorTest, SameTextAsWithoutWhatIsKept) {
  for (const size_t length : {1, 3, 5, 6, 7, 20}) {
    std::vector<int64_t> prompt(length);
    for (size_t i = 0; i < length; ++i) prompt[i] = static_cast<int64_t>((5 * i + 3) % 17);
    const GenerationOptions options{.tokens = 20, .sampling = {.temperature = 0}};
    const std::vector<int64_t> expected = text_without_memory(prompt, 20);
    EXPECT_EQ(text_from(Layout(4, {{{4}}}, RankOrder::kTpDpPp), prompt, options), expected) << length;
    EXPECT_EQ(text_from(Layout(4, {{{1, 2, 1}}}, RankOrder::kTpDpPp), prompt, options), expected) << length;
    EXPECT_EQ(text_from(interleaved(), prompt, options), expected) << length;
  }
}

TEST(GeneratorTest, TheSeedRepeatsTheText) {
  const Layout layout(4, {{{4}}}, RankOrder::kTpDpPp);
  const auto text = [&](uint64_t seed) {
    return text_from(layout, kPrompt, {.tokens = 60, .sampling = {.temperature = 2}, .seed = seed});
  };
  EXPECT_EQ(text(5), text(5));
  EXPECT_NE(text(5), text(6));
}

}  // namespace
}  // namespace hdt::training::testing
