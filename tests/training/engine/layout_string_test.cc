// layout_string_test.cc: what Megatron's layout strings mean, that writing and reading fit each other, and
// that each error names its place.
#include "training/engine/layout_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <regex>

#include "training/engine/layout_flags.h"

namespace hdt::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> parsed(const std::string& text) {
  const Result<std::vector<int>> stages = parse_layout_string(text);
  EXPECT_TRUE(stages.is_ok()) << text << ": " << stages.status().message();
  return stages.is_ok() ? stages.value() : std::vector<int>();
}

std::string error_of(const std::string& text) {
  const Result<std::vector<int>> stages = parse_layout_string(text);
  EXPECT_FALSE(stages.is_ok()) << text;
  if (stages.is_ok()) return "";
  EXPECT_EQ(stages.status().code(), Code::kInvalidArgument);
  return stages.status().message();
}

TEST(LayoutString, WhatMegatronsExamplesMean) {
  EXPECT_THAT(parsed("EtL"), ElementsAre(1));
  EXPECT_THAT(parsed("Ettt|tL"), ElementsAre(3, 1));
  EXPECT_THAT(parsed("E,t*3|(tt|)*2,t,L"), ElementsAre(3, 2, 2, 1));
  EXPECT_THAT(parsed("Et(|t)*3L"), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(parsed("E(t*2|t),*,2,L"), ElementsAre(2, 3, 1));  // commas are nowhere in the way
  // DeepSeek-V3's 61 layers on 16 x 2 virtual stages, without its layer of multi-token prediction.
  const std::vector<int> stages = parsed("Et*3|(tt|)*28,t|tL");
  EXPECT_EQ(stages.size(), 31u);
  EXPECT_EQ(stages.front(), 3);
  EXPECT_EQ(stages[28], 2);
}

TEST(LayoutString, IsWrittenShort) {
  EXPECT_EQ(layout_string(std::vector{1}), "EtL");
  EXPECT_EQ(layout_string(std::vector{3, 2, 2, 2, 1}), "Et*3|(tt|)*3tL");
  EXPECT_EQ(layout_string(std::vector{2, 2, 4, 4, 2}), "Ett|tt|(t*4|)*2ttL");
}

// Megatron's own reading, by text replacement: the oracle for random strings.
std::vector<int> expanded(std::string text) {
  std::erase(text, ',');
  for (const char* pattern : {R"(\(([^)]+)\)\*(\d+))", R"((.)\*(\d+))"}) {
    const std::regex repetition(pattern);
    std::smatch match;
    std::string result;
    while (std::regex_search(text, match, repetition)) {
      result += match.prefix().str();
      for (int i = 0; i < std::stoi(match[2]); ++i) result += match[1].str();
      text = match.suffix().str();
    }
    text = result + text;
  }
  std::vector<int> layers(1);
  for (const char c : text) {
    if (c == '|') layers.push_back(0);
    if (c == 't') ++layers.back();
  }
  return layers;
}

TEST(LayoutString, RandomStringsMeanWhatMegatronExpandsThemTo) {
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  for (int round = 0; round < 500; ++round) {
    std::string text = "E";
    const auto layers = [&] {
      const int count = pick(1, 4);
      text += pick(0, 1) == 0 ? std::string(static_cast<size_t>(count), 't') : "t*" + std::to_string(count);
      if (pick(0, 3) == 0) text += ',';
    };
    for (int part = pick(0, 4); part > 0; --part) {
      layers();
      text += '|';
      if (pick(0, 1) == 0) continue;
      text += '(';
      for (int stage = pick(1, 3); stage > 0; --stage) {
        layers();
        text += '|';
      }
      text += ")*" + std::to_string(pick(1, 12));
    }
    layers();
    text += 'L';
    const std::vector<int> stages = parsed(text);
    ASSERT_EQ(stages, expanded(text)) << text;
    ASSERT_EQ(parsed(layout_string(stages)), stages) << text;
    ASSERT_EQ(expanded(layout_string(stages)), stages) << text;
    // One byte that is changed, dropped or doubled ends in a value or in an error, never in anything else.
    std::string spoilt = text;
    const auto at = static_cast<size_t>(pick(0, static_cast<int>(text.size()) - 1));
    spoilt[at] = static_cast<char>(pick(0, 255));
    const Result<std::vector<int>> read = parse_layout_string(spoilt);
    ASSERT_TRUE(read.is_ok() || !read.status().message().empty());
  }
}

TEST(LayoutString, EachErrorNamesItsPlace) {
  EXPECT_EQ(error_of(""), "no embedding E, expected it at the beginning");
  EXPECT_EQ(error_of("E"), "no loss L, expected it at the end");
  EXPECT_EQ(error_of("Et|tx|tL"), "character 5: 'x', expected E, t, L, '|', '(', '*' or ','");
  EXPECT_EQ(error_of("Et \x01L"), "character 3: neither E, t, L, '|', '(', '*' nor ','");
  EXPECT_EQ(error_of("Et*3|m|L"),
            "character 6: m, a layer of multi-token prediction (MTP): HDT has none yet");
  EXPECT_EQ(error_of("tEL"), "character 1: a layer t, expected behind the embedding E and before the loss L");
  EXPECT_EQ(error_of("EtLt"),
            "character 4: a layer t, expected behind the embedding E and before the loss L");
  EXPECT_EQ(error_of("EtE"), "character 3: expected one embedding E, before all layers");
  EXPECT_EQ(error_of("EtL*2"), "character 3: expected one loss L, behind all layers");
  EXPECT_EQ(error_of("*3"), "character 1: '*', expected behind a layer, a '|' or a ')'");
  EXPECT_EQ(error_of("Et*L"), "character 3: '*', expected a number behind it");
  EXPECT_EQ(error_of("Et*0L"), "character 4: 0 times, expected 1 to 1000000");
  EXPECT_EQ(error_of("Et*1,2L"), "character 6: '2', expected E, t, L, '|', '(', '*' or ','");
  EXPECT_EQ(error_of("Et*2*3L"), "character 5: a repetition of a repetition");
  EXPECT_EQ(error_of("E(t)*2*3L"), "character 7: a repetition of a repetition");
  EXPECT_EQ(error_of("E(tt|"), "character 2: '(' without a ')'");
  EXPECT_EQ(error_of("Ett)*2"), "character 4: ')' without a '('");
  EXPECT_EQ(error_of("E((t|)*2)*2L"), "character 3: '(' between parentheses, which Megatron does not have");
  EXPECT_EQ(error_of("E(tt)L"), "character 5: ')', expected '*' and a number behind it");
  EXPECT_EQ(error_of("E()*2L"), "character 2: nothing between the parentheses");
}

TEST(LayoutString, EmbeddingAndLossMayHaveAStageForThemselves) {
  EXPECT_THAT(parsed("E|tt|tL"), ElementsAre(0, 2, 1));
  EXPECT_THAT(parsed("Ett|t|L"), ElementsAre(2, 1, 0));
  EXPECT_THAT(parsed("E|tt|L"), ElementsAre(0, 2, 0));
  // Megatron's example, without the stage of multi-token prediction in front of the loss.
  const std::vector<int> stages_of_example = parsed("Et*3|(tt|)*29L");
  EXPECT_EQ(stages_of_example.size(), 31U);
  EXPECT_EQ(stages_of_example.back(), 0);
  for (const std::vector<int>& stages : {std::vector<int>{0, 2, 1}, {2, 1, 0}, {0, 3, 3, 0}})
    EXPECT_EQ(parsed(layout_string(stages)), stages) << layout_string(stages);
  EXPECT_EQ(error_of("Et||tL"), "stage 2 of 3 holds nothing: leave it out");
  EXPECT_EQ(error_of("|EtL"), "stage 1 of 2 holds nothing: leave it out");
  EXPECT_EQ(error_of("EL"), "no layer t, expected at least one");
  EXPECT_EQ(error_of("E|L"), "no layer t, expected at least one");
}

// Without limits each would need more memory or time than there is.
TEST(LayoutString, BombsOfRepetitionsAreRefused) {
  EXPECT_EQ(error_of("Et*99999999999999999999L"),
            "character 4: 99999999999999999999 times, expected 1 to 1000000");
  EXPECT_EQ(error_of("E(t*999999)*999999L"), "character 3: more than 1000000 layers");
  EXPECT_EQ(error_of("Et(|*1000000t)*1000000L"), "character 4: more than 1000000 stages");
  EXPECT_EQ(error_of("E" + std::string(65'536, 't')), "65537 characters, expected at most 65536");
  std::string many = "E";
  for (int i = 0; i < 8000; ++i) many += "(t)*999";
  EXPECT_THAT(error_of(many), HasSubstr("more than 1000000 layers"));
}

LayoutFlags layout_job(const std::string& layout) {
  LayoutFlags flags;
  flags.world_size = 4;
  flags.num_layers = 8;
  flags.pipeline_model_parallel_size = 2;
  flags.pipeline_model_parallel_layout = layout;
  flags.micro_batch_size = 1;
  return flags;
}

TEST(LayoutString, IsTheSplitOfEveryReplica) {
  const Result<Layout> layout = make_layout(layout_job("Et*5|t*3L"));
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().num_replicas(), 2);
  EXPECT_THAT(layout.value().replica(1).stage_layers, ElementsAre(5, 3));
  EXPECT_EQ(layout.value().replica(1).chunks, 1);
  // Twice as many stages as the pipeline has: two chunks each, the first ones of all stages first.
  const Result<Layout> chunks = make_layout(layout_job("Et*3|tt|tt|tL"));
  ASSERT_TRUE(chunks.is_ok()) << chunks.status().message();
  EXPECT_EQ(chunks.value().replica(0).chunks, 2);
  EXPECT_EQ(chunks.value().replica(0).stages(), 2);
  EXPECT_THAT(chunks.value().replica(0).stage_layers, ElementsAre(3, 2, 2, 1));
  // Without the size of the pipeline each is a stage of its own.
  LayoutFlags flags = layout_job("Et*3|tt|tt|tL");
  flags.pipeline_model_parallel_size.reset();
  const Result<Layout> stages = make_layout(flags);
  ASSERT_TRUE(stages.is_ok()) << stages.status().message();
  EXPECT_EQ(stages.value().replica(0).stages(), 4);
}

TEST(LayoutString, MustFitTheOtherFlags) {
  const auto error = [](const LayoutFlags& flags) { return make_layout(flags).status().message(); };
  EXPECT_EQ(error(layout_job("Et*5|t*4L")),
            "--pipeline-model-parallel-layout: 9 layers, --num-layers is 8: 1 too many");
  EXPECT_EQ(error(layout_job("Et*4|tt|ttL")),
            "--pipeline-model-parallel-layout: 3 stages, which is no multiple of "
            "--pipeline-model-parallel-size 2: 1 left over");
  EXPECT_THAT(error(layout_job("Et*5|t*3")), HasSubstr("--pipeline-model-parallel-layout: no loss L"));
  LayoutFlags flags = layout_job("Et*5|t*3L");
  flags.world_size = 5;
  EXPECT_EQ(error(flags), "5 ranks do not divide into replicas of 2 stages: 1 left over");
  flags = layout_job("Et*5|t*3L");
  flags.hetero_pipeline_stages = {{2, 5, 3}};
  EXPECT_EQ(
      error(flags),
      "--pipeline-model-parallel-layout and --hetero-pipeline-stages exclude each other: give one of them");
  flags = layout_job("Et*5|t*3L");
  flags.virtual_stages_per_rank = {1};
  EXPECT_THAT(error(flags), HasSubstr("and --num-virtual-stages-per-pipeline-rank exclude each other"));
  flags = layout_job("Et*5|t*3L");
  flags.layers_per_virtual_stage = 1;
  EXPECT_THAT(error(flags), HasSubstr("and --num-layers-per-virtual-pipeline-stage exclude each other"));
}

}  // namespace
}  // namespace hdt::training
