// sharded_plan_test.cc: plans with sharded optimizer states (use_distributed_optimizer): their memory, the
// times of what replaces the allreduce, and how they are written, refused and exported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/convert/forms.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/output/plan_export.h"
#include "training/plan/predict/allreduce_time.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/equal_split.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kMib = 1 << 20;
// Of the example, with four layers: embedding, layers and head.
constexpr double kParameters = (8 + 4 * 4 + 8) * kMib;

class ShardedPlan : public ::testing::Test {
 protected:
  // The example on "fast" with one sample, as in predictor_test.cc.
  static constexpr double kForward = .061;
  static constexpr double kBackward = .122;
  static constexpr double kUpdate = .001 + 4 * .002 + .001;

  ShardedPlan() {
    // Two replicas of one stage on "fast"; nodes talk at 1 GB/s.
    plan_.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
    plan_.runtime.use_distributed_optimizer = true;
  }
  PredictionInputs inputs() const { return {cluster_, model_, profile_, {}}; }
  Prediction predicted(const Plan& plan) const {
    const auto result = predict(inputs(), plan);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? result.value() : Prediction{};
  }
  Plan with_whole_states() const {
    Plan whole = plan_;
    whole.runtime.use_distributed_optimizer = false;
    return whole;
  }

  Cluster cluster_ = example_cluster();
  Model model_ = example_model();
  Profile profile_ = example_profile();
  Plan plan_;
};

// As rings a reduce-scatter and an allgather are an allreduce. So without overlap the step is shorter by the
// part of the update that the other replica does.
TEST_F(ShardedPlan, AReduceScatterAndAnAllgatherTakeTheTimeOfAnAllreduce) {
  plan_.runtime.overlap_gradients = false;
  const Prediction sharded = predicted(plan_);
  const Prediction whole = predicted(with_whole_states());
  EXPECT_NEAR(whole.step_seconds,
              2 * (kForwardSeconds + kBackwardSeconds) + kParameters / 1e9 + kUpdateSeconds, 1e-9);
  EXPECT_NEAR(sharded.step_seconds, whole.step_seconds - kUpdateSeconds / 2, 1e-9);
  for (const WorkerTime& time : sharded.workers) {
    EXPECT_NEAR(time.optimizer, kUpdateSeconds / 2, 1e-12);
    EXPECT_NEAR(time.exposed_reduction, kParameters / 1e9, 1e-9);
    EXPECT_NEAR(time.sum(), sharded.step_seconds, 1e-9);
  }
}

// Gradients in fp32 of parameters in bf16 have twice their bytes, and parameters that are gathered do not.
TEST_F(ShardedPlan, ReductionsAreOfTheGradientsTypeAndGathersOfTheParameters) {
  plan_.runtime.overlap_gradients = false;
  model_.types = {training::NumberType::kBFloat16, training::NumberType::kFloat32};
  for (const WorkerTime& time : predicted(plan_).workers)
    EXPECT_NEAR(time.exposed_reduction, (2 + 1) * kParameters / 2 / 1e9, 1e-9);
  for (const WorkerTime& time : predicted(with_whole_states()).workers)
    EXPECT_NEAR(time.exposed_reduction, 2 * kParameters / 1e9, 1e-9);
}

// A bucket for each unit: the embedding's parameters (half of 8 MiB come) are waited for, and all others come
// while units before them are computed.
TEST_F(ShardedPlan, ParametersComeUnderTheFirstForwardUnitByUnit) {
  plan_.runtime.bucket_bytes = 1;
  const double embedding = 4 * kMib / 1e9;
  const double layer = 2 * kMib / 1e9;
  const Prediction prediction = predicted(plan_);
  std::vector<Span> gathers;
  std::vector<Span> forwards;
  for (const Span& span : prediction.spans) {
    if (span.worker != 0) continue;
    if (span.kind == SpanKind::kGather) gathers.push_back(span);
    if (span.kind == SpanKind::kForward && span.index == 0) forwards.push_back(span);
  }
  ASSERT_EQ(gathers.size(), 6u);
  double end = 0;
  for (size_t unit = 0; unit < gathers.size(); ++unit) {
    EXPECT_NEAR(gathers[unit].start, end, 1e-12);  // one after the other
    end += unit == 0 || unit == 5 ? embedding : layer;
    EXPECT_NEAR(gathers[unit].end, end, 1e-9);
  }
  ASSERT_GE(forwards.size(), 2u);
  EXPECT_NEAR(forwards.front().start, embedding, 1e-9);
  // The first layer's parameters come after 2.1 ms, and the embedding takes 1 ms.
  EXPECT_NEAR(forwards.front().end, embedding + .001, 1e-9);
  EXPECT_NEAR(forwards[1].start, embedding + layer, 1e-9);
  EXPECT_NEAR(forwards.back().end, embedding + layer + kForwardSeconds - .001, 1e-9);
  // Behind the last backward the embedding's gradients are left, and what the embedding's backward of 2 ms
  // has not hidden of the first layer's.
  EXPECT_NEAR(prediction.step_seconds,
              embedding + layer - .001 + 2 * (kForwardSeconds + kBackwardSeconds) + embedding +
                  (layer - .002) + kUpdateSeconds / 2,
              1e-9);
}

TEST_F(ShardedPlan, EachWorkerKeepsItsShardOfTheStates) {
  const Prediction sharded = predicted(plan_);
  const Prediction whole = predicted(with_whole_states());
  const double activations = (16 + 4 * 64 + 128) * kMib;
  EXPECT_EQ(whole.peak_memory_bytes, std::vector<double>(2, 4 * kParameters + activations));
  EXPECT_EQ(sharded.peak_memory_bytes, std::vector<double>(2, 3 * kParameters + activations));
  // Masters and moments in fp32 of parameters and gradients in 16 bits: 12 of 16 bytes.
  model_.state_factor = 8;
  model_.optimizer_factor = 6;
  EXPECT_EQ(predicted(plan_).peak_memory_bytes,
            std::vector<double>(2, (2 + 6. / 2) * kParameters + activations));
}

// The first stages own the embedding and two layers together, all owners share what is theirs.
TEST_F(ShardedPlan, SharesAreOfTheOwnersOfEachUnit) {
  plan_ = example_plan();  // 3 + 1 and 2 + 2 layers
  plan_.runtime.use_distributed_optimizer = true;
  plan_.replicas[0].stages[0].optimizer_shard_weight = 3;
  const StateShares shares(plan_, false);
  const auto of = [&](size_t replica, size_t stage, int unit) {
    return shares.of(plan_.replicas[replica].stages[stage], unit);
  };
  for (const int unit : {0, 1, 2}) {
    EXPECT_EQ(of(0, 0, unit), .75);
    EXPECT_EQ(of(1, 0, unit), .25);
  }
  EXPECT_EQ(of(0, 0, 3), .75);
  EXPECT_EQ(of(1, 1, 3), .25);
  for (const int unit : {4, 5}) {
    EXPECT_EQ(of(0, 1, unit), .5);
    EXPECT_EQ(of(1, 1, unit), .5);
  }
  const Prediction prediction = predicted(plan_);
  // "slow" updates as fast as "fast" does in the example.
  EXPECT_NEAR(prediction.workers[0].optimizer, .75 * (.001 + 3 * .002), 1e-12);
  EXPECT_NEAR(prediction.workers[3].optimizer, .25 * .002 + .5 * (.002 + .001), 1e-12);
  const auto memory = worker_memory(inputs(), plan_);
  EXPECT_EQ(memory[0].updated_bytes, .75 * (8 + 3 * 4) * kMib);
  EXPECT_EQ(memory[3].updated_bytes, .25 * 4 * kMib + .5 * (4 + 8) * kMib);
  // What the owners of a unit keep is one copy, whatever the weights.
  double all = 0;
  for (const StageMemory& worker : memory) all += worker.updated_bytes;
  EXPECT_NEAR(all, kParameters, 1e-3);
}

TEST_F(ShardedPlan, UnequalShardsMoveMoreOverARing) {
  plan_.runtime.overlap_gradients = false;
  plan_.replicas[0].stages[0].optimizer_shard_weight = 3;
  // A hop carries all shards but one: three quarters of the bytes, twice.
  EXPECT_NEAR(predicted(plan_).step_seconds,
              2 * (kForwardSeconds + kBackwardSeconds) + 1.5 * kParameters / 1e9 + .75 * kUpdateSeconds,
              1e-9);
}

TEST_F(ShardedPlan, OneReplicaHasNothingToShare) {
  plan_.replicas.pop_back();
  const Prediction sharded = predicted(plan_);
  const Prediction whole = predicted(with_whole_states());
  EXPECT_EQ(sharded.step_seconds, whole.step_seconds);
  EXPECT_EQ(sharded.peak_memory_bytes, whole.peak_memory_bytes);
}

// libhdt reduces to one owner after the other and broadcasts from one after the other: each is as long as a
// message of all bytes where latency is nothing.
TEST_F(ShardedPlan, WithLibhdtEachOfBothCarriesAllBytes) {
  plan_.runtime.overlap_gradients = false;
  plan_.runtime.reduction = ReductionKind::kHdt;
  profile_.collective = {};
  const std::vector<int> nodes = {0, 2};
  const double reduce = reduce_scatter_seconds(inputs(), nodes, 2, kParameters);
  const double gather = all_gather_seconds(inputs(), nodes, 2, kParameters);
  EXPECT_NEAR(reduce, kParameters / 1e9, 1e-3);
  EXPECT_NEAR(gather, kParameters / 1e9, 1e-3);
  EXPECT_NEAR(predicted(plan_).step_seconds,
              2 * (kForwardSeconds + kBackwardSeconds) + reduce + gather + kUpdateSeconds / 2 +
                  small_sum_seconds(inputs(), nodes, false),
              1e-9);
  // Many nodes are not simulated; the closed form is near to the simulation where both can be used.
  const std::vector<int> many(33, 0);
  const std::vector<int> fewer(32, 0);
  for (const auto& seconds : {reduce_scatter_seconds, all_gather_seconds})
    EXPECT_NEAR(seconds(inputs(), many, 33, 1 << 30), seconds(inputs(), fewer, 32, 1 << 30), .1);
}

TEST_F(ShardedPlan, IsReadAndWrittenAndOldFilesStayAsTheyWere) {
  EXPECT_THAT(to_toml(with_whole_states()), Not(HasSubstr("optimizer")));
  EXPECT_THAT(to_toml(plan_), HasSubstr("use_distributed_optimizer = true"));
  EXPECT_THAT(to_toml(plan_), Not(HasSubstr("optimizer_shard_weight")));
  plan_.replicas[1].stages[0].optimizer_shard_weight = 0.5;
  EXPECT_THAT(to_toml(plan_), HasSubstr("optimizer_shard_weight = 0.5"));
  EXPECT_EQ(plan_text(plan_, cluster_),
            "1 x (4 fast) of 2 x 1 + 1 x (4 fast (shards of weight 0.5)) of 2 x 1, optimizer states sharded");
}

TEST_F(ShardedPlan, WeightsThatDoNotFitAreRefused) {
  const auto refusal = [&] {
    const std::string text = check_replicas(plan_).message();
    EXPECT_EQ(check_plan(plan_, cluster_, model_, profile_).message(), text);
    return text;
  };
  EXPECT_EQ(refusal(), "");
  plan_.replicas[1].stages[0].optimizer_shard_weight = -1;
  EXPECT_EQ(refusal(),
            "replica 2.stage 1.optimizer_shard_weight: -1 given, expected a finite number of at least 0");
  plan_.replicas[1].stages[0].optimizer_shard_weight = 0;
  EXPECT_EQ(refusal(), "");
  plan_.replicas[0].stages[0].optimizer_shard_weight = 0;
  EXPECT_THAT(refusal(), HasSubstr("0 for all owners (ranks 0, 1)"));
  plan_.runtime.use_distributed_optimizer = false;
  EXPECT_EQ(refusal(),
            "replica 1.stage 1.optimizer_shard_weight: 0 given; optimizer states are whole, expected "
            "use_distributed_optimizer = true");
  model_.optimizer_factor = 4;
  EXPECT_THAT(check_model(model_).message(),
              HasSubstr("optimizer_factor: 4 given, expected more than 0 and less than"));
}

TEST_F(ShardedPlan, MegatronsFlagIsExportedAndConvertedBothWays) {
  const auto exported = [&] { return megatron_flags(plan_, cluster_); };
  EXPECT_THAT(exported().flags, HasSubstr(" --use-distributed-optimizer"));
  EXPECT_THAT(exported().warnings, IsEmpty());
  EXPECT_THAT(megatron_flags(with_whole_states(), cluster_).flags, Not(HasSubstr("optimizer")));
  plan_.replicas[1].stages[0].optimizer_shard_weight = 2;
  EXPECT_THAT(exported().warnings, ElementsAre(HasSubstr("optimizer_shard_weight is left out")));
  const Strategy strategy = strategy_of_plan(plan_, &cluster_).value().value;
  EXPECT_EQ(plan_of_strategy(strategy).value(), plan_);
  for (const Form form : {Form::kMegatronFork, Form::kMegatronLayout, Form::kFlagScale}) {
    const Warned<std::string> written = write_form(form, strategy).value();
    EXPECT_THAT(written.value, HasSubstr(" --use-distributed-optimizer"));
    EXPECT_THAT(written.warnings, testing::Contains(HasSubstr("optimizer_shard_weight is left out")));
    FormContext context;
    context.ranks = 2;
    const Warned<Strategy> read = read_flag_form(form, written.value, {}, context).value();
    EXPECT_TRUE(read.value.runtime.use_distributed_optimizer) << form_name(form);
    EXPECT_THAT(read.warnings, Not(testing::Contains(HasSubstr("left out"))));
  }
}

// A replica of one stage needs 3 x the parameters with shards, and 4 x without.
TEST_F(ShardedPlan, SearchTakesItWhereNothingElseFits) {
  cluster_ = {{{"a", "fast", 1, 0}, {"c", "fast", 1, 0}}};
  model_ = example_model(1);  // so there are no stages to divide into
  const double parameters = (8 + 4 + 8) * kMib;
  const double activations = (16 + 64 + 128) * kMib;
  for (Node& node : cluster_.nodes) node.memory_bytes = static_cast<int64_t>(3.5 * parameters + activations);
  SearchOptions options;
  options.global_batch_size = 4;
  EXPECT_THAT(search(inputs(), options).status().message(), HasSubstr("fits memory in no split: "));
  EXPECT_FALSE(search_equal_split(inputs(), options).is_ok());
  options.shard_optimizer = true;
  for (const auto& find : {&search, &search_equal_split}) {
    const auto found = find(inputs(), options);
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    EXPECT_TRUE(found.value().plan.runtime.use_distributed_optimizer);
    EXPECT_EQ(found.value().plan.replicas.size(), 2u);
  }
  cluster_.nodes[0].memory_bytes = cluster_.nodes[1].memory_bytes = 1 << 20;
  EXPECT_THAT(search(inputs(), options).status().message(),
              HasSubstr("fits memory in no split, with sharded optimizer states: "));
}

// By classes of replicas: sixteen devices, each of which has memory for a shard only.
TEST_F(ShardedPlan, SearchOfLargeClustersTakesItWhereNothingElseFits) {
  cluster_ = {{{"a", "fast", 8, 0}, {"c", "fast", 8, 0}}};
  model_ = example_model(1);
  for (LayerKind& kind : model_.layers) kind.parameter_bytes.erase(2);
  const double parameters = (8 + 4 + 8) * kMib;
  for (Node& node : cluster_.nodes)
    node.memory_bytes = static_cast<int64_t>(2.5 * parameters + (16 + 64 + 128) * kMib);
  SearchOptions options;
  options.global_batch_size = 16;
  EXPECT_FALSE(search(inputs(), options).is_ok());
  options.shard_optimizer = true;
  const auto found = search(inputs(), options);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_TRUE(found.value().plan.runtime.use_distributed_optimizer);
  EXPECT_GE(found.value().plan.replicas.size(), 4u);
  const Prediction prediction = predicted(found.value().plan);
  EXPECT_EQ(memory_excess(cluster_, found.value().plan, prediction).bytes, 0);
}

}  // namespace
}  // namespace hdt::plan
