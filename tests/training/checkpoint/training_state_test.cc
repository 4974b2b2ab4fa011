// training_state_test.cc: the JSON of a checkpoint is read as it was written, and refused with the reason
// where a field is wrong.
#include "training/checkpoint/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/training/checkpoint/examples.h"
#include "training/checkpoint/paths.h"

namespace hdt::training {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kHash(64, 'a');

CheckpointContents example_contents() {
  CheckpointContents contents;
  contents.state = example_state(7);
  contents.shards = {{"model-00001-of-00001.safetensors", 100}};
  contents.tensors = {{"w", {"model-00001-of-00001.safetensors", Dtype::kF32, {2, 3}, kHash}}};
  return contents;
}

// The reason why contents are refused in which `change` has changed something.
template <typename Change>
std::string refusal(Change change) {
  json object = json::parse(to_text(example_contents()));
  change(object);
  const auto read = parse_checkpoint_contents(object.dump());
  return read.is_ok() ? "" : read.status().message();
}

TEST(TrainingStateJson, IsReadAsWritten) {
  const auto read = parse_checkpoint_contents(to_text(example_contents()));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(to_text(read.value()), to_text(example_contents()));
  EXPECT_EQ(read.value().state.seed, example_state(7).seed);
  EXPECT_EQ(read.value().state.fingerprint, example_state(7).fingerprint);
  EXPECT_EQ(read.value().state.settings, example_state(7).settings);
  EXPECT_EQ(read.value().tensors.at("w").shape, (Shape{2, 3}));
}

TEST(TrainingStateJson, KeepsALossScaleExactly) {
  CheckpointContents contents = example_contents();
  EXPECT_EQ(to_text(contents).find("loss_scale"), std::string::npos);
  contents.state.loss_scale = {0.1, 3, 1, 5};
  const auto read = parse_checkpoint_contents(to_text(contents));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read.value().state.loss_scale, contents.state.loss_scale);
}

TEST(TrainingStateJson, IsRefusedWithTheReason) {
  const std::string shard = "model-00001-of-00001.safetensors";
  EXPECT_EQ(refusal([](json&) {}), "");
  for (const char* key :
       {"version", "step", "seed", "consumed_samples", "fingerprint", "shards", "tensors"}) {
    EXPECT_EQ(refusal([key](json& o) { o.erase(key); }), std::string("'") + key + "' is missing");
    EXPECT_THAT(refusal([key](json& o) { o[key] = "x"; }), HasSubstr(std::string("'") + key + "' is no "));
  }
  EXPECT_THAT(refusal([](json& o) { o["version"] = 2; }), HasSubstr("its version is 2"));
  EXPECT_THAT(refusal([](json& o) { o["step"] = -1; }), HasSubstr("'step'"));
  EXPECT_THAT(refusal([](json& o) { o["step"] = uint64_t{1} << 63; }), HasSubstr("'step'"));
  EXPECT_THAT(refusal([](json& o) { o["seed"] = 1.5; }), HasSubstr("'seed'"));
  EXPECT_THAT(refusal([](json& o) { o["fingerprint"]["a"] = 1; }), HasSubstr("object of texts"));
  // Earlier versions wrote no settings.
  EXPECT_EQ(refusal([](json& o) { o.erase("settings"); }), "");
  EXPECT_THAT(refusal([](json& o) { o["settings"] = "x"; }), HasSubstr("'settings' is no "));
  EXPECT_THAT(refusal([](json& o) { o["settings"]["lr"] = 1; }), HasSubstr("object of texts"));
  const auto scaled = [](const char* key, const json& value) {
    return refusal([&](json& o) {
      o["loss_scale"] = {{"scale", 0.1}, {"good_steps", 3}, {"hysteresis_left", 2}, {"skipped_steps", 7}};
      o["loss_scale"][key] = value;
    });
  };
  EXPECT_EQ(scaled("scale", 65536), "");
  for (const char* key : {"scale", "good_steps", "hysteresis_left", "skipped_steps"}) {
    EXPECT_THAT(scaled(key, "x"), HasSubstr(std::string("'") + key + "' is no "));
    EXPECT_THAT(scaled(key, -1), HasSubstr(std::string("'") + key + "' is n"));
  }
  // The example is of step 7.
  EXPECT_THAT(scaled("skipped_steps", 8), HasSubstr("'skipped_steps'"));
  EXPECT_THAT(scaled("good_steps", 8), HasSubstr("'good_steps'"));
  EXPECT_THAT(refusal([](json& o) { o["loss_scale"] = 1; }), HasSubstr("'loss_scale' is no "));
  EXPECT_THAT(refusal([](json& o) { o["shards"]["../x"] = 1; }), HasSubstr("'../x' is no name of a shard"));
  EXPECT_THAT(refusal([](json& o) { o["shards"][".x"] = 1; }), HasSubstr("no name of a shard"));
  EXPECT_THAT(refusal([](json& o) { o["shards"][std::string(256, 'x')] = 1; }), HasSubstr("no name"));
  EXPECT_THAT(refusal([&](json& o) { o["shards"][shard] = "1"; }), HasSubstr("size of shard"));
  EXPECT_THAT(refusal([](json& o) { o["shards"] = json::object(); }),
              HasSubstr("'w': its shard is not listed"));
  const auto tensor = [](auto change) { return refusal([&](json& o) { change(o["tensors"]["w"]); }); };
  for (const char* key : {"dtype", "shape", "sha256", "shard"}) {
    EXPECT_THAT(tensor([key](json& t) { t.erase(key); }), HasSubstr("tensor 'w'"));
    EXPECT_THAT(tensor([key](json& t) { t[key] = 1; }), HasSubstr("tensor 'w'"));
  }
  EXPECT_THAT(tensor([](json& t) { t["dtype"] = "F31"; }), HasSubstr("unknown dtype 'F31'"));
  EXPECT_THAT(tensor([](json& t) { t["sha256"] = std::string(63, 'a'); }), HasSubstr("64 hex digits"));
  EXPECT_THAT(tensor([](json& t) {
                t["shape"] = {uint64_t{1} << 40, uint64_t{1} << 40};
              }),
              HasSubstr("large"));
  EXPECT_THAT(tensor([](json& t) { t["shape"] = json(std::vector<int>(65, 1)); }), HasSubstr("at most 64"));
  EXPECT_THAT(tensor([](json& t) { t = 1; }), HasSubstr("tensor 'w'"));
  EXPECT_THAT(refusal([](json& o) { o["tensors"][""] = o["tensors"]["w"]; }), HasSubstr("name that is none"));
  EXPECT_FALSE(parse_checkpoint_contents("").is_ok());
  EXPECT_FALSE(parse_checkpoint_contents("[]").is_ok());
  EXPECT_THAT(parse_checkpoint_contents(R"({"version":1,"version":1})").status().message(),
              HasSubstr("comes twice"));
}

TEST(ShardSummaryText, IsReadAsWrittenAndRefusedWithTheReason) {
  ShardSummary summary{3, 2, {{ShardKind::kOptimizer, "optimizer.rank-00002.safetensors", 77, {}}}};
  summary.shards[0].tensors = {{"w.exp_avg", {summary.shards[0].file, Dtype::kF32, {4}, kHash}}};
  const auto read = parse_shard_summary(to_text(summary));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(to_text(read.value()), to_text(summary));
  EXPECT_EQ(read.value().shards[0].tensors.at("w.exp_avg").shard, summary.shards[0].file);
  const auto reason = [&](auto change) {
    json object = json::parse(to_text(summary));
    change(object);
    const auto parsed = parse_shard_summary(object.dump());
    return parsed.is_ok() ? "" : parsed.status().message();
  };
  EXPECT_THAT(reason([](json& o) { o["rank"] = uint64_t{1} << 31; }), HasSubstr("'rank'"));
  EXPECT_THAT(reason([](json& o) { o.erase("step"); }), HasSubstr("'step' is missing"));
  EXPECT_THAT(reason([](json& o) { o.erase("shards"); }), HasSubstr("'shards' is missing"));
  EXPECT_THAT(reason([](json& o) { o["shards"] = 1; }), HasSubstr("no array"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0] = 1; }), HasSubstr("no object"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0]["kind"] = "other"; }), HasSubstr("neither"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0]["file"] = "a/b"; }), HasSubstr("no name"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0].erase("file"); }), HasSubstr("'file'"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0].erase("bytes"); }), HasSubstr("'bytes'"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0]["tensors"] = 1; }), HasSubstr("'tensors'"));
  EXPECT_THAT(reason([](json& o) { o["shards"][0]["tensors"]["w"] = 1; }), HasSubstr("tensor 'w'"));
  EXPECT_FALSE(parse_shard_summary("{").is_ok());
}

TEST(CheckpointPaths, NamesAreReadInTheFormInWhichTheyAreWritten) {
  for (const int64_t step : {int64_t{0}, int64_t{100}, int64_t{9'999'999}, int64_t{123'456'789}}) {
    EXPECT_EQ(step_of_iteration(iteration_name(step)), step);
  }
  EXPECT_EQ(iteration_name(100), "iter_0000100");
  for (const char* name :
       {"iter_100", "iter_00000100", "iter_-000001", "iter_", "iter_0000100x", "0000100"}) {
    EXPECT_EQ(step_of_iteration(name), std::nullopt) << name;
  }
  EXPECT_EQ(shard_name("model", 3, 12), "model-00003-of-00012.safetensors");
}

}  // namespace
}  // namespace hdt::training
