// interleaved_plan_test.cc: plans whose stages hold several chunks of the model: their files, and their steps
// and memory against what the schedule's lists say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "training/engine/pipeline_schedule.h"
#include "training/plan/describe/group_classes.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/output/pictures.h"
#include "training/plan/output/plan_export.h"
#include "training/plan/predict/predictor.h"

namespace hdt::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using training::PipelineAction;
using training::PipelineStep;
using training::TemporaryFolder;

// A stage with these chunks.
Stage chunked(const std::vector<int>& layers, const std::string& node) {
  return {std::accumulate(layers.begin(), layers.end(), 0), node, 1, 0, layers};
}

// One replica on the devices that are fast: `split` has the layers of each chunk, stage by stage.
Plan interleaved_plan(const std::vector<std::vector<int>>& split, int micro_batches) {
  Plan plan;
  plan.runtime.schedule = ScheduleKind::kInterleaved;
  plan.replicas = {{1, micro_batches, {}}};
  const std::vector<std::string> nodes = {"a", "a", "c", "c"};
  for (size_t stage = 0; stage < split.size(); ++stage)
    plan.replicas[0].stages.push_back(chunked(split[stage], nodes[stage]));
  return plan;
}

// Two stages of two chunks: 1 + 2 and 1 + 1 layers.
Plan small_plan() { return interleaved_plan({{1, 2}, {1, 1}}, 2); }

// Links that cost nothing, and layers of 10 ms forward and 20 ms backward; all else takes no time.
Profile blocks_only() {
  Profile profile = example_profile();
  for (auto& [key, link] : profile.links) link.bandwidth = {{1, 1e18}};
  for (auto& [key, cost] : profile.compute) {
    cost =
        key.layer == "block" ? LayerCost{.01, .01, .01, 1e-12, 64} : LayerCost{1e-12, 1e-12, 1e-12, 1e-12, 1};
  }
  return profile;
}

// The length of the longest path through the lists: each step begins when the one before it in its list and
// the one in another list that it needs have ended. Only computations take time.
double critical_path(const std::vector<std::vector<PipelineStep>>& lists, int chunks,
                     const std::vector<double>& forward, const std::vector<double>& backward) {
  const auto stages = static_cast<int>(lists.size());
  std::map<std::tuple<bool, int, int>, double> ends;  // backward, virtual stage, micro-batch
  std::vector<double> now(lists.size(), 0);
  std::vector<size_t> next(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < stages; ++stage) {
      const std::vector<PipelineStep>& list = lists[static_cast<size_t>(stage)];
      while (next[static_cast<size_t>(stage)] < list.size()) {
        const PipelineStep step = list[next[static_cast<size_t>(stage)]];
        const bool back = step.action == PipelineAction::kBackward;
        const int here = step.chunk * stages + stage;
        double& time = now[static_cast<size_t>(stage)];
        if (back || step.action == PipelineAction::kForward) {
          const int before = here + (back ? 1 : -1);
          if (before >= 0 && before < stages * chunks) {
            const auto needed = ends.find({back, before, step.micro_batch});
            if (needed == ends.end()) break;
            time = std::max(time, needed->second);
          }
          time += (back ? backward : forward)[static_cast<size_t>(here)];
          ends[{back, here, step.micro_batch}] = time;
        }
        ++next[static_cast<size_t>(stage)];
        moved = true;
      }
    }
  }
  for (size_t stage = 0; stage < lists.size(); ++stage) EXPECT_EQ(next[stage], lists[stage].size());
  return std::ranges::max(now);
}

// In units of 10 ms, with forwards of 1, 1, 2 and 1 and backwards of twice that: stage 1 does its forwards
// from 0 to 2 and from 2 to 6, and gets the first gradient when stage 2 has computed it, at 7. It computes
// until 15, gets the gradient of its first chunk at 13, and has its last backward from 17 to 19.
TEST(InterleavedPlan, TakesTheCriticalPathOfItsSchedule) {
  const Profile profile = blocks_only();
  const Cluster cluster = example_cluster();
  const Model model = example_model(5);
  const auto prediction = predict({cluster, model, profile, {}}, small_plan());
  ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
  EXPECT_NEAR(prediction.value().step_seconds, .19, 1e-8);
  EXPECT_NEAR(prediction.value().workers[0].compute, .18, 1e-8);
  EXPECT_NEAR(prediction.value().workers[1].compute, .12, 1e-8);
  // 1F1B with the same layers on each stage takes longer.
  Plan plain = small_plan();
  plain.runtime.schedule = ScheduleKind::kOneForwardOneBackward;
  for (Stage& stage : plain.replicas[0].stages) stage.chunk_layers.clear();
  EXPECT_NEAR(predict_seconds({cluster, model, profile, {}}, plain).value(), .21, 1e-8);
}

TEST(InterleavedPlan, TakesTheCriticalPathForRandomChunks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const Profile profile = blocks_only();
  const Cluster cluster = example_cluster();
  for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round) {
    const int stages = any(2, 4);
    const int chunks = any(2, 4);
    const int micro_batches = stages * any(1, 4);
    std::vector<std::vector<int>> split(static_cast<size_t>(stages), std::vector<int>(chunks));
    int layers = 0;
    for (std::vector<int>& stage : split) {
      for (int& chunk : stage) layers += chunk = any(1, 3);
    }
    std::vector<std::vector<PipelineStep>> lists;
    std::vector<double> forward;
    std::vector<double> backward;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (const std::vector<int>& stage : split) {
        forward.push_back(.01 * stage[static_cast<size_t>(chunk)]);
        backward.push_back(2 * forward.back());
      }
    }
    for (int stage = 0; stage < stages; ++stage)
      lists.push_back(training::interleaved_one_forward_one_backward(stages, chunks, stage, micro_batches));
    const Model model = example_model(layers);
    const auto seconds =
        predict_seconds({cluster, model, profile, {}}, interleaved_plan(split, micro_batches));
    ASSERT_TRUE(seconds.is_ok()) << seconds.status().message();
    EXPECT_NEAR(seconds.value(), critical_path(lists, chunks, forward, backward), 1e-7);
  }
}

// Stage 1 does all four forwards before its first backward; stage 2 has at most both of its first chunk and
// one of its second.
TEST(InterleavedPlan, HoldsTheActivationsOfAllItsChunks) {
  const Profile profile = blocks_only();
  const Cluster cluster = example_cluster();
  const Model model = example_model(5);
  const auto memory = worker_memory({cluster, model, profile, {}}, small_plan());
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].activation_bytes, 2 * 64 + 2 * 2 * 64 + 2 * 1);
  EXPECT_EQ(memory[1].activation_bytes, 2 * 64 + 64 + 1);
  EXPECT_EQ(memory[0].parameter_bytes, (3 * 4 + 8) << 20);
}

// Each chunk has one layer, so bytes count what is in flight. The checker accepts that number and no
// smaller one.
TEST(InterleavedPlan, HoldsAsManyMicroBatchesAsTheCheckerSees) {
  Profile profile = blocks_only();
  for (auto& [key, cost] : profile.compute) cost.activation_bytes = key.layer == "block" ? 1 << 20 : 0;
  const Cluster cluster = example_cluster();
  for (int stages = 2; stages <= 4; ++stages) {
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int micro_batches = stages; micro_batches <= 3 * stages; micro_batches += stages) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << chunks << " chunks, " << micro_batches);
        const Model model = example_model(stages * chunks);
        const std::vector<std::vector<int>> split(static_cast<size_t>(stages), std::vector<int>(chunks, 1));
        std::vector<int> in_flight;
        for (const StageMemory& worker :
             worker_memory({cluster, model, profile, {}}, interleaved_plan(split, micro_batches)))
          in_flight.push_back(static_cast<int>(worker.activation_bytes) >> 20);
        std::vector<std::vector<PipelineStep>> lists;
        for (int stage = 0; stage < stages; ++stage)
          lists.push_back(
              training::interleaved_one_forward_one_backward(stages, chunks, stage, micro_batches));
        EXPECT_TRUE(training::check_pipeline(lists, micro_batches, in_flight, chunks).is_ok());
        for (int& stage : in_flight) {
          --stage;
          EXPECT_THAT(training::check_pipeline(lists, micro_batches, in_flight, chunks).message(),
                      HasSubstr("more in flight"));
          ++stage;
        }
      }
    }
  }
}

// The first layers of a stage, chunk after chunk.
TEST(InterleavedPlan, RecomputesTheFirstLayersOfAStage) {
  Stage stage = chunked({2, 3}, "a");
  stage.recomputed_layers = 4;
  EXPECT_EQ(stage.recomputed_of(0), 2);
  EXPECT_EQ(stage.recomputed_of(1), 2);
  const Profile profile = blocks_only();
  const Cluster cluster = example_cluster();
  const Model model = example_model(5);
  Plan plan = small_plan();
  plan.replicas[0].stages[0].recomputed_layers = 2;
  const auto prediction = predict({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
  // Two of three layers do their forward twice, for two micro-batches.
  EXPECT_NEAR(prediction.value().workers[0].compute, .18 + 2 * 2 * .01, 1e-8);
}

// A second replica with one stage: the gradients of each chunk are summed as soon as its last backward is
// done, those of the last chunk first.
TEST(InterleavedPlan, SumsTheGradientsOfEachChunkWhenTheyAreThere) {
  const Profile profile = blocks_only();
  const Cluster cluster = example_cluster();
  const Model model = example_model(5);
  Plan plan = small_plan();
  plan.replicas.push_back({1, 1, {{5, "b", 1}}});
  const auto prediction = predict({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
  std::vector<double> starts;
  for (const Span& span : prediction.value().spans) {
    if (span.kind == SpanKind::kReduction && span.worker == 0) starts.push_back(span.start);
  }
  std::ranges::sort(starts);
  // Stage 1 ends the last backward of its second chunk at 150 ms, and that of its first one at 190 ms.
  ASSERT_GE(starts.size(), 2u);
  EXPECT_NEAR(starts.front(), .15, 1e-6);
  EXPECT_NEAR(starts.back(), .19, 1e-6);
  for (const WorkerTime& time : prediction.value().workers)
    EXPECT_NEAR(time.sum(), prediction.value().step_seconds, 1e-9);
}

// The last stage sends to the first one, over the link between their nodes.
TEST(InterleavedPlan, GoesBackToTheFirstStageOverTheNetwork) {
  Profile profile = blocks_only();
  profile.links[{"fast", "fast", false}] = {.5, {{1, 1e18}}};
  const Cluster cluster = example_cluster();
  const Model model = example_model(4);
  Plan plan = interleaved_plan({{1, 1}, {1, 1}}, 2);
  plan.replicas[0].stages[1].node = "c";
  // Six messages one after the other: over the pipeline twice with one turn, and back.
  const auto prediction = predict({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
  EXPECT_GT(prediction.value().step_seconds, 6 * .5);
  EXPECT_LT(prediction.value().step_seconds, 6 * .5 + .3);
}

TEST(InterleavedPlan, ReadsBackTheSame) {
  const TemporaryFolder folder;
  const std::string path = folder.file("plan.toml");
  training::write_all(path, to_toml(small_plan()));
  const auto read = read_plan(path);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(read.value(), small_plan());
  EXPECT_THAT(to_toml(small_plan()), HasSubstr("layers = [1, 2]\n"));
  // A list of one is one chunk.
  Plan plain = example_plan();
  std::string text = to_toml(plain);
  text.replace(text.find("layers = 3"), 10, "layers = [3]");
  training::write_all(path, text);
  EXPECT_EQ(read_plan(path).value(), plain);
}

TEST(InterleavedPlan, FilesThatContradictThemselvesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("plan.toml");
  const auto refusal = [&](const std::string& what, const std::string& with) {
    std::string text = to_toml(small_plan());
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    training::write_all(path, text.replace(at, what.size(), with));
    const auto read = read_plan(path);
    EXPECT_FALSE(read.is_ok()) << with;
    const std::string message = read.status().message();
    return message.substr(std::min(message.size(), path.size() + 2));
  };
  EXPECT_EQ(refusal("layers = [1, 2]", "layers = [1, 1, 1]"),
            "replica 1.stage 2.layers: 2 chunks of the model given, stage 1 has 3: expected as many on each "
            "stage of a replica");
  EXPECT_EQ(refusal("layers = [1, 2]", "layers = [1, 0]"),
            "replica 1.stage 1.layers: 0 given for chunk 2, expected at least 1");
  EXPECT_EQ(refusal("layers = [1, 2]", "layers = []"),
            "replica 1.stage 1.layers: an empty list given, expected at least one integer");
  EXPECT_EQ(refusal("layers = [1, 2]", "layers = [2147483647, 1]"),
            "replica 1.stage 1.layers: 2147483648 given in all, expected at most 2147483647");
  EXPECT_EQ(refusal("layers = [1, 2]", "layers = '1'"), "replica 1.stage 1.layers: expected an integer");
  EXPECT_EQ(refusal("\"interleaved\"", "\"1f1b\""),
            "replica 1.stage 1.layers: 2 chunks given, schedule '1f1b' is for one: expected schedule "
            "'interleaved'");
  EXPECT_EQ(refusal("micro_batches = 2", "micro_batches = 3"),
            "replica 1.micro_batches: 3 given, expected a multiple of the 2 stages, as these have several "
            "chunks: 1 left over");
  EXPECT_EQ(refusal("micro_batches = 2", "micro_batches = 2147483646"),
            "replica 1.micro_batches: 2147483646 given with 2 chunks on each stage, expected at most "
            "1073741823");
  const std::string text = to_toml(small_plan());
  EXPECT_EQ(refusal(text.substr(text.rfind("\n  [[replica.stage]]")), ""),
            "replica 1.stage: 1 given with 2 chunks, expected at least 2");
  training::write_all(path, "schedule = 'interleaved'\n" +
                                to_toml(example_plan()).substr(to_toml(example_plan()).find('\n') + 1));
  EXPECT_THAT(read_plan(path).status().message(),
              HasSubstr("schedule: 'interleaved' given, but every stage has one chunk of the model"));
}

TEST(InterleavedPlan, IsExportedAndDescribedWithItsChunks) {
  Plan plan = interleaved_plan({{1, 2}, {1, 1}, {2, 1}}, 3);
  plan.replicas[0].stages[1].node = "b";
  const Cluster cluster = example_cluster();
  const MegatronFlags exported = megatron_flags(plan, cluster);
  EXPECT_THAT(exported.flags, HasSubstr("--pipeline-model-parallel-size 3 --num-layers 8 "
                                        "--hetero-pipeline-stages 1 1 2 1 1 1 1 2 1 "));
  EXPECT_THAT(exported.flags, HasSubstr(" --num-virtual-stages-per-pipeline-rank 2"));
  EXPECT_THAT(exported.warnings, ElementsAre());
  EXPECT_TRUE(check_engine_runs(plan).is_ok());
  EXPECT_EQ(plan_text(plan, cluster), "1 x (1+2 fast, 1+1 slow, 2+1 fast) of 3 x 1");
  const Profile profile = blocks_only();
  const Model model = example_model(8);
  const auto prediction = predict({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
  EXPECT_THAT(perfetto_trace(plan, prediction.value()), HasSubstr("\"forward 2 of chunk 2\""));
  // Row 0 of the picture: boxes of the first chunk, and lower ones of the second.
  const std::string script = pipeline_script(plan, prediction.value());
  EXPECT_THAT(script, HasSubstr("lower boxes: later chunks"));
  EXPECT_THAT(script, testing::ContainsRegex("\nforward [^\n]* 0 -0.35 0.20\n"));
  EXPECT_THAT(script, testing::ContainsRegex("\nforward [^\n]* 0 -0.15 0.20\n"));
}

// The engine's layout: the first chunks of all stages, then the second ones.
TEST(InterleavedPlan, IsTheEnginesLayout) {
  const training::Layout layout = interleaved_plan({{1, 2}, {3, 4}}, 2).layout();
  EXPECT_THAT(layout.replica(0).stage_layers, ElementsAre(1, 3, 2, 4));
  EXPECT_EQ(layout.replica(0).chunks, 2);
  EXPECT_EQ(layout.num_layers(), 10);
}

}  // namespace
}  // namespace hdt::plan
