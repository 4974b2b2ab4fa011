// predictor_test.cc: predicted steps against what can be computed by hand, and what must hold for every plan.
#include "training/plan/predict/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "collectives/cost_model.h"
#include "tests/training/plan/examples.h"
#include "training/engine/lockstep_schedule.h"
#include "training/engine/schedules.h"
#include "training/plan/predict/allreduce_time.h"

namespace hdt::plan {
namespace {

class Predictor : public ::testing::Test {
 protected:
  Prediction predicted(const Plan& plan) {
    const auto result = predict({cluster_, model_, profile_, calibration_}, plan);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? result.value() : Prediction{};
  }
  void set_rate(double bytes_per_second) {
    for (auto& [key, link] : profile_.links) link.bandwidth = {{1, bytes_per_second}};
  }

  Cluster cluster_ = example_cluster();
  Model model_ = example_model();
  Profile profile_ = example_profile();
  Calibration calibration_;
};

TEST_F(Predictor, OneWorkerComputesAndUpdates) {
  Plan plan;
  plan.replicas = {{1, 5, {{4, "a", 1}}}};
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.step_seconds, 5 * (kForwardSeconds + kBackwardSeconds) + kUpdateSeconds, 1e-12);
  EXPECT_NEAR(prediction.workers[0].optimizer, kUpdateSeconds, 1e-12);
  EXPECT_NEAR(prediction.workers[0].bubble, 0, 1e-12);
}

// (micro-batches + stages - 1) rounds for equal stages and free links: Narayanan et al., "Efficient
// large-scale language model training on GPU clusters using Megatron-LM", 2.2.
TEST_F(Predictor, EqualStagesOnFreeLinksHaveTheKnownBubble) {
  set_rate(1e18);
  for (auto& [key, cost] : profile_.compute) {
    if (key.layer != "block") cost = {1e-12, 1e-12, 1e-12, 1e-12, 1};
  }
  for (const ScheduleKind schedule : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kLockstep}) {
    Plan plan;
    plan.runtime.schedule = schedule;
    plan.replicas = {{1, 7, {{1, "a", 1}, {1, "a", 1}, {1, "c", 1}, {1, "c", 1}}}};
    const Prediction prediction = predicted(plan);
    EXPECT_NEAR(prediction.step_seconds, (7 + 3) * .03 + .002, 1e-6);
    EXPECT_NEAR(prediction.workers[2].bubble, 3 * .03, 1e-6);
  }
}

// Two equal stages whose messages take as long as their forward and backward. A micro-batch is away from the
// first stage for three of these times, so 1F1B, with two in flight, takes two of them for each micro-batch.
// With eager 1F1B only the way of the first one there and back is seen, three times more; the messages of the
// warm-up share the link, so the first one takes up to three times as long.
TEST_F(Predictor, EagerHidesMessagesThatTakeAsLongAsAStage) {
  constexpr double kTime = .06;
  for (auto& [key, cost] : profile_.compute) {
    cost =
        key.layer == "block" ? LayerCost{.01, .01, .01, 1e-12, 1} : LayerCost{1e-12, 1e-12, 1e-12, 1e-12, 1};
  }
  set_rate(static_cast<double>(model_.layers[1].output_bytes) / kTime);
  for (auto& [key, link] : profile_.links) link.latency = 0;
  Plan plan;
  plan.replicas = {{1, 32, {{2, "a", 1}, {2, "c", 1}}}};
  EXPECT_NEAR(predicted(plan).step_seconds, 2 * 32 * kTime, 2 * kTime);
  plan.runtime.schedule = ScheduleKind::kEager;
  const Prediction prediction = predicted(plan);
  EXPECT_GT(prediction.step_seconds, (32 + 2.9) * kTime);
  EXPECT_LT(prediction.step_seconds, (32 + 5) * kTime);
  // Four micro-batches in flight on the first stage, one on the second, of three units with a byte each.
  const auto memory = worker_memory({cluster_, model_, profile_, calibration_}, plan);
  EXPECT_EQ(memory[0].activation_bytes, 4 * 3);
  EXPECT_EQ(memory[1].activation_bytes, 3);
}

// F = B = W on free links: 1F1B's bubble is (stages - 1)(F + B + W), ZB-H1's (stages - 1)(F + B - W), a third
// of it (Qi et al., table 2).
TEST_F(Predictor, ZeroBubbleHasAThirdOfTheBubble) {
  set_rate(1e18);
  for (auto& [key, cost] : profile_.compute)
    cost =
        key.layer == "block" ? LayerCost{.01, .01, .01, 1e-12, 1} : LayerCost{1e-12, 1e-12, 1e-12, 1e-12, 1};
  Plan plan;
  plan.runtime.schedule = ScheduleKind::kZeroBubble;
  plan.replicas = {{1, 8, {{1, "a", 1}, {1, "a", 1}, {1, "c", 1}, {1, "c", 1}}}};
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.step_seconds, 8 * .03 + 3 * .01, 1e-5);
  // Never more memory than the first stage of 1F1B: four micro-batches in flight.
  for (const double bytes : prediction.peak_memory_bytes)
    EXPECT_LE(bytes, 4 * ((12 << 20) + 4.0 * (1 << 20)) + 4 * 2);
  plan.runtime.schedule = ScheduleKind::kOneForwardOneBackward;
  EXPECT_NEAR(predicted(plan).step_seconds, (8 + 3) * .03, 1e-5);
}

// Two of four layers' forwards again, their activations of 64 MiB as inputs of 1 MiB, but those of one at a
// time.
TEST_F(Predictor, RecomputedLayersCostAForwardAndNoActivations) {
  Plan plan;
  plan.replicas = {{1, 5, {{4, "a", 1}}}};
  const double kept = predicted(plan).peak_memory_bytes[0];
  plan.replicas[0].stages[0].recomputed_layers = 2;
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.step_seconds, 5 * (kForwardSeconds + kBackwardSeconds + 2 * .01) + kUpdateSeconds,
              1e-12);
  EXPECT_NEAR(prediction.workers[0].compute, 5 * (kForwardSeconds + kBackwardSeconds + 2 * .01), 1e-12);
  EXPECT_EQ(prediction.peak_memory_bytes[0], kept - 2.0 * (63 << 20) + (64 << 20));
  // With two micro-batches in flight the inputs count twice, the layer under way once.
  plan.replicas = {{1, 5, {{3, "a", 1}, {1, "c", 1}}}};
  const double two = predicted(plan).peak_memory_bytes[0];
  plan.replicas[0].stages[0].recomputed_layers = 3;
  EXPECT_EQ(predicted(plan).peak_memory_bytes[0], two - 2 * 3.0 * (63 << 20) + (64 << 20));
}

// Of 64 MiB a layer keeps 24; 3 ms more. One layer at a time has all 64.
TEST_F(Predictor, RecomputedAttentionTakesAndKeepsWhatTheProfileSays) {
  for (auto& [key, cost] : profile_.compute)
    cost.recomputed_attention = {.003, 3 * cost.activation_bytes / 8};
  Plan plan;
  plan.replicas = {{1, 5, {{4, "a", 1}}}};
  const double kept = predicted(plan).peak_memory_bytes[0];
  Stage& stage = plan.replicas[0].stages[0];
  stage.recomputed_layers = 2;
  stage.attention_only = true;
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.workers[0].compute, 5 * (kForwardSeconds + kBackwardSeconds + 2 * .003), 1e-12);
  EXPECT_EQ(prediction.peak_memory_bytes[0], kept - 2.0 * (40 << 20) + (40 << 20));
  // With two micro-batches in flight what is not kept counts twice, the layer under way once.
  plan.replicas = {{1, 5, {{3, "a", 1}, {1, "c", 1}}}};
  const double two = predicted(plan).peak_memory_bytes[0];
  plan.replicas[0].stages[0].recomputed_layers = 3;
  plan.replicas[0].stages[0].attention_only = true;
  EXPECT_EQ(predicted(plan).peak_memory_bytes[0], two - 2 * 3.0 * (40 << 20) + (40 << 20));
}

TEST_F(Predictor, MessagesAreExposedWhereNothingHidesThem) {
  set_rate(1e8);  // a message of 2^20 bytes: 10.5 ms
  const double message = (1 << 20) / 1e8;
  Plan plan;
  plan.runtime.reduction = ReductionKind::kRing;  // no sum of the norm
  plan.replicas = {{1, 1, {{2, "a", 1}, {2, "c", 1}}}};
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.step_seconds, kForwardSeconds + kBackwardSeconds + 2 * message + .001 + 2 * .002,
              1e-9);
  EXPECT_NEAR(prediction.workers[0].exposed_pipeline, message, 1e-9);
  EXPECT_NEAR(prediction.workers[1].exposed_pipeline, message, 1e-9);
}

TEST_F(Predictor, GradientsAreReducedOverARing) {
  const double bytes = (8 + 4 * 4 + 8) << 20;
  Plan plan;
  plan.runtime.reduction = ReductionKind::kRing;
  plan.runtime.overlap_gradients = false;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.workers[0].exposed_reduction, bytes / 1e9, 1e-9);  // 2 (n - 1) / n = 1
  EXPECT_NEAR(prediction.step_seconds,
              2 * (kForwardSeconds + kBackwardSeconds) + bytes / 1e9 + kUpdateSeconds, 1e-9);
  calibration_.allreduce = 0.5;
  EXPECT_NEAR(predicted(plan).workers[1].exposed_reduction, 2 * bytes / 1e9, 1e-9);
  // Rates measured for allreduces replace those of messages.
  for (auto& [key, link] : profile_.links) link.allreduce = {{1, 1e8}};
  EXPECT_NEAR(predicted(plan).workers[1].exposed_reduction, 2 * bytes / 1e8, 1e-9);
}

TEST_F(Predictor, OverlapHidesReductionsBehindTheLastBackward) {
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  plan.runtime.bucket_bytes = 1;  // a bucket a unit
  plan.runtime.reduction = ReductionKind::kRing;
  const Prediction prediction = predicted(plan);
  // The units behind have 20 ms of computation each, which hide all; the last block's 4 MiB have only the
  // embedding's 2 ms, and the embedding's 8 MiB come after the end.
  EXPECT_NEAR(prediction.workers[0].exposed_reduction, (12 << 20) / 1e9 - .002, 1e-9);
}

TEST_F(Predictor, GradientsAreReducedAsTheCostModelSays) {
  profile_.collective = {1e-6, 1e9, 2e9, 1 << 18};
  for (auto& [key, link] : profile_.links) link.latency = key.inside ? 0 : 5e-6;
  Plan plan;
  plan.runtime.reduction = ReductionKind::kHdt;
  plan.runtime.overlap_gradients = false;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  const double bytes = (8 + 4 * 4 + 8) << 20;
  // 32 MiB in chunks of 256 KiB between two nodes.
  collectives::Problem chunk;
  chunk.what = collectives::Collective::kAllReduce;
  chunk.nodes = 2;
  chunk.block_offsets = {0, 1 << 15, 1 << 16};
  collectives::CostMeasurements figures;
  figures.link = {5e-6, 1e9};
  figures.step_overhead_s = 1e-6;
  figures.reduce_bytes_s = 1e9;
  figures.copy_bytes_s = 2e9;
  const double expected = collectives::predict(
      select_algorithm(chunk, collectives::DataType::kFloat32, chunk.elements()),
      {chunk, collectives::DataType::kFloat32, static_cast<uint64_t>(bytes) >> 18, 4}, figures);
  // Combining at 1 GB/s counts: it is no ring that is bound by the link alone.
  EXPECT_GT(expected, bytes / 1e9);
  const double norm = 5e-6 + 1e-6;
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.workers[0].exposed_reduction, expected + norm, 1e-9);
  EXPECT_NEAR(prediction.step_seconds,
              2 * (kForwardSeconds + kBackwardSeconds) + expected + norm + kUpdateSeconds, 1e-9);
}

TEST_F(Predictor, LargeReductionsFollowTheClosedForm) {
  for (auto& [key, link] : profile_.links) link.latency = key.inside ? 0 : 5e-6;
  const std::vector<int> nodes(64, 0);
  profile_.collective.step_overhead = 2e-6;
  const PredictionInputs inputs{cluster_, model_, profile_, {}};
  const double bytes = 1 << 30;
  EXPECT_NEAR(allreduce_seconds(inputs, nodes, bytes), 126 * 7e-6 + 126. / 64 * bytes / 1e9, 1e-9);
  EXPECT_NEAR(allreduce_seconds(inputs, nodes, 8), 12 * 7e-6 + 126. / 64 * 8 / 1e9, 1e-9);  // few steps
  // Where both could be used they agree: the simulated ring of 32 nodes is bound by its links.
  const std::vector<int> fewer(32, 0);
  EXPECT_NEAR(allreduce_seconds(inputs, fewer, bytes), 62. / 32 * bytes / 1e9, .1 * bytes / 1e9);
  EXPECT_NEAR(small_sum_seconds(inputs, nodes, false), 6 * 7e-6, 1e-12);
}

// The update begins when the sum over all workers is known, also on a worker whose own gradients were ready
// long before.
TEST_F(Predictor, AllWorkersWaitForTheNorm) {
  for (auto& [key, cost] : profile_.compute) {
    if (key.device == "fast") cost.update = .05;
  }
  Plan plan;
  plan.runtime.reduction = ReductionKind::kHdt;
  plan.replicas = {{1, 1, {{1, "a", 1}, {3, "b", 1}}}};
  const Prediction prediction = predicted(plan);
  double last_backward = 0;
  for (const Span& span : prediction.spans) {
    if (span.kind == SpanKind::kBackward) last_backward = std::max(last_backward, span.end);
    if (span.kind == SpanKind::kUpdate) {
      EXPECT_GE(span.start, last_backward);
    }
  }
  EXPECT_NEAR(prediction.workers[0].optimizer, 2 * .05, 1e-12);
}

TEST_F(Predictor, CommunicationSlowsComputationDown) {
  profile_.overlap_slowdown = 2;
  set_rate(1e8);
  Plan plan;
  plan.replicas = {{1, 2, {{2, "a", 1}, {2, "c", 1}}}};
  const Prediction slowed = predicted(plan);
  profile_.overlap_slowdown = 1;
  const Prediction free = predicted(plan);
  // While a message of 10.5 ms is under way, half of that time's computation is lost; the first stage
  // computes its second forward meanwhile.
  const double message = (1 << 20) / 1e8;
  EXPECT_GT(slowed.workers[0].compute, free.workers[0].compute + .9 * message / 2);
  EXPECT_GT(slowed.step_seconds, free.step_seconds);
  for (const WorkerTime& time : slowed.workers) EXPECT_NEAR(time.sum(), slowed.step_seconds, 1e-9);
  // A number of the device's own goes before that for all; one of another device changes nothing here.
  profile_.overlap_slowdowns = {{"fast", 2}, {"slow", 3}};
  EXPECT_EQ(predicted(plan).step_seconds, slowed.step_seconds);
  profile_.overlap_slowdowns = {{"slow", 3}};
  EXPECT_EQ(predicted(plan).step_seconds, free.step_seconds);
}

TEST_F(Predictor, MemoryIsStatesAndActivationsInFlight) {
  Plan plan;
  plan.replicas = {{1, 4, {{1, "a", 1}, {1, "b", 1}, {2, "c", 1}}}};
  calibration_ = {1, {}, 1, 1, 0.5, 1000, 10};
  const Prediction prediction = predicted(plan);
  const double mib = 1 << 20;
  EXPECT_DOUBLE_EQ(prediction.peak_memory_bytes[0], 4 * 12 * mib + 0.5 * 3 * (16 + 64) * mib + 1000);
  EXPECT_DOUBLE_EQ(prediction.peak_memory_bytes[2], 4 * 16 * mib + 0.5 * 1 * (2 * 64 + 128) * mib + 1000);
  EXPECT_EQ(memory_excess(cluster_, plan, prediction).bytes, 0);
  cluster_.nodes[1].memory_bytes = static_cast<int64_t>(prediction.peak_memory_bytes[1]) - 7;
  const MemoryExcess excess = memory_excess(cluster_, plan, prediction);
  EXPECT_EQ(excess.worker, 1);
  EXPECT_EQ(excess.bytes, 7);
}

// What a process takes on a kind of device counts there, beside what a calibration has for all.
TEST_F(Predictor, MemoryHasWhatAProcessTakesOnItsKindOfDevice) {
  Plan plan;
  plan.replicas = {{1, 4, {{1, "a", 1}, {1, "b", 1}, {2, "c", 1}}}};
  const std::vector<double> without = predicted(plan).peak_memory_bytes;
  profile_.fixed_bytes = {{"slow", 5000}};
  const std::vector<double> with = predicted(plan).peak_memory_bytes;
  EXPECT_EQ(with[0], without[0]);
  EXPECT_EQ(with[1], without[1] + 5000);
  calibration_.fixed_bytes = 1000;
  EXPECT_EQ(predicted(plan).peak_memory_bytes[1], without[1] + 6000);
  // Chunks of one stage are of one process.
  calibration_.fixed_bytes = 0;
  plan.replicas = {{1, 4, {{2, "a", 1}, {2, "b", 1}}}};
  plan.runtime.schedule = ScheduleKind::kInterleaved;
  for (Stage& stage : plan.replicas[0].stages) stage.chunk_layers = {1, 1};
  const double chunks = predicted(plan).peak_memory_bytes[1];
  profile_.fixed_bytes.clear();
  EXPECT_EQ(chunks, predicted(plan).peak_memory_bytes[1] + 5000);
}

TEST_F(Predictor, LaunchTimeIsToldApartFromTheDevice) {
  // 10 ms of launches, 2 ms of device a sample: what was measured is the larger.
  for (const auto& [size, seconds] : {std::pair{1, .01}, {2, .01}, {4, .01}, {8, .016}, {16, .032}}) {
    for (const char* layer : {"embedding", "block", "head"})
      profile_.compute[{"fast", layer, 1, size}] = {seconds, seconds, 1e-12, .001, 1};
  }
  Plan plan;
  plan.replicas = {{2, 1, {{4, "a", 1}}}};
  EXPECT_NEAR(predicted(plan).workers[0].compute, 6 * 2 * .01, 1e-9);
  calibration_.launch = 0.5;
  EXPECT_NEAR(predicted(plan).workers[0].compute, 6 * 2 * (.5 * .01 + 2 * .002), 1e-9);
}

TEST_F(Predictor, APlanThatWouldHangIsRefused) {
  Plan plan;
  plan.replicas = {{1, 4, {{2, "a", 1}, {2, "c", 1}}}};
  plan.runtime.background_send_bytes = 0;
  const auto refused = predict({cluster_, model_, profile_, {}}, plan);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("would wait for each other for ever"));
  plan.runtime.schedule = ScheduleKind::kLockstep;
  EXPECT_GT(predicted(plan).step_seconds, 0);
}

// Two stages that both send first: an exchange is both messages at once, so nobody waits for ever.
TEST_F(Predictor, AnExchangeInLockstepWaitsForBothMessages) {
  for (auto& [key, cost] : profile_.compute) {
    if (key.layer != "block") cost = {1e-9, 1e-9, 1e-9, 1e-9, 1};
  }
  const double message = .004;
  set_rate((1 << 20) / message);
  Plan plan;
  plan.replicas = {{1, 4, {{2, "a", 1}, {2, "c", 1}}}};
  const double background = predicted(plan).step_seconds;
  plan.runtime.lockstep_exchange = true;
  const Prediction prediction = predicted(plan);
  // A forward takes .02 and a backward .04 on each stage. The second stage has its forwards and backwards,
  // with a message before each pair: the first activation, then three exchanges. The last gradient, backward
  // and update of the first stage follow.
  EXPECT_NEAR(prediction.step_seconds, .02 + 4 * (message + .06) + message + .04 + .004, 1e-6);
  // In the background the second activation comes while the second stage computes.
  EXPECT_NEAR(background, prediction.step_seconds - message, 1e-6);
  EXPECT_NEAR(prediction.workers[0].sum(), prediction.step_seconds, 1e-9);
  // Sends alone that wait would wait for ever in this order.
  plan.runtime.lockstep_exchange = false;
  plan.runtime.background_send_bytes = 0;
  EXPECT_FALSE(predict({cluster_, model_, profile_, calibration_}, plan).is_ok());
}

TEST_F(Predictor, PartsSumToTheStepForRandomPlans) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  model_.layers[1].forward_sums = {1 << 20};
  model_.layers[1].backward_sums = {1 << 20};
  for (int round = 0; round < 200; ++round) {
    set_rate(std::pow(10, any(6, 10)));
    const int degree = any(1, 2);
    for (Node& node : cluster_.nodes) node.devices = 2 * degree;
    Plan plan;
    plan.runtime.schedule = kScheduleKinds[any(0, std::size(kScheduleKinds) - 1)];
    plan.runtime.overlap_gradients = any(0, 1);
    if (any(0, 1)) plan.runtime.reduction = ReductionKind::kHdt;
    profile_.overlap_slowdown = any(0, 1) ? 1 : 1.3;
    plan.runtime.bucket_bytes = any(1, 30 << 20);
    // An interleaved plan has a replica with chunks, beside what is random.
    if (plan.runtime.schedule == ScheduleKind::kInterleaved)
      plan.replicas = {{1, 2 * any(1, 3), {{2, "c", degree, 0, {1, 1}}, {2, "d", degree, 0, {1, 1}}}}};
    if (plan.runtime.schedule == ScheduleKind::kLockstep && any(0, 1)) plan.runtime.background_send_bytes = 0;
    if (plan.runtime.schedule == ScheduleKind::kOneForwardOneBackward)
      plan.runtime.lockstep_exchange = any(0, 1);
    const int replicas = any(1, 3);
    int taken = 0;
    for (int r = 0; r < replicas; ++r) {
      plan.replicas.push_back({1 << any(0, 2), any(1, 6), {}});
      int left = 4;
      for (int stages = any(1, 2); stages > 0; --stages, ++taken) {
        const int layers = stages == 1 ? left : any(0, left);
        plan.replicas.back().stages.push_back({layers, cluster_.nodes[taken % 4].name, degree});
        left -= layers;
      }
    }
    const Prediction prediction = predicted(plan);
    for (const WorkerTime& time : prediction.workers) {
      EXPECT_NEAR(time.sum(), prediction.step_seconds, 1e-9 * prediction.step_seconds);
      EXPECT_GE(std::min({time.exposed_pipeline, time.exposed_reduction, time.bubble}), -1e-9);
    }
    for (const Span& span : prediction.spans) EXPECT_LE(span.end, prediction.step_seconds * (1 + 1e-12));
    if (HasFailure()) return;
  }
}

TEST(LockstepSchedule, RunsForAllSizes) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      std::vector<std::vector<training::PipelineStep>> schedules;
      std::vector<int> in_flight;
      for (int stage = 0; stage < stages; ++stage) {
        schedules.push_back(training::lockstep_one_forward_one_backward(stages, stage, micro_batches));
        in_flight.push_back(training::most_in_flight(stages, stage, micro_batches));
        EXPECT_EQ(training::most_in_flight(schedules.back()), in_flight.back());
      }
      const Status status = training::check_pipeline(schedules, micro_batches, in_flight);
      EXPECT_TRUE(status.is_ok()) << stages << " stages, " << micro_batches << ": " << status.message();
    }
  }
}

}  // namespace
}  // namespace hdt::plan
