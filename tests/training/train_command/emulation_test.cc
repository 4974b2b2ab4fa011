// emulation_test.cc: plans on devices that are not there (--emulate).
#include <regex>

#include "base/atomic_file.h"
#include "tests/training/plan/examples.h"
#include "tests/training/train_command/small_run.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"

namespace hdt::training::testing {
namespace {

using ::testing::HasSubstr;

class Emulation : public ::testing::Test {
 protected:
  // A tenth of the example's times, and messages of a few KiB.
  Emulation() {
    for (auto& [key, cost] : profile_.compute) {
      for (double* const time : {&cost.forward, &cost.input_gradient, &cost.weight_gradient, &cost.update})
        *time /= 10;
    }
    for (plan::LayerKind& kind : model_.layers) {
      kind.output_bytes /= 128;
      for (auto& [degree, bytes] : kind.parameter_bytes) bytes /= 128;
    }
    plan_.runtime.reduction = plan::ReductionKind::kHdt;
  }

  std::string write(const std::string& name, const std::string& text) const {
    const Status written = write_file_atomically(scratch_.path(name), text);
    EXPECT_TRUE(written.is_ok()) << written.message();
    return scratch_.path(name);
  }
  ProgramResult emulate(int count, const std::string& more = "") const {
    quiet();
    write("model.toml", plan::to_toml(model_));
    write("cluster.toml", plan::to_toml(cluster_));
    return run_forked_train(" --emulate " + write("profile.toml", plan::to_toml(profile_)) + " --plan " +
                                write("plan.toml", plan::to_toml(plan_)) + " --train-iters 6" + more,
                            kTimeLimit, count);
  }

  ScratchDirectory scratch_;
  plan::Profile profile_ = plan::example_profile();
  plan::Model model_ = plan::example_model();
  plan::Cluster cluster_ = plan::example_cluster();
  plan::Plan plan_ = plan::example_plan();
};

// Two chunks on each stage of the second replica; the first one has one.
TEST_F(Emulation, PlansWithChunksRun) {
  plan_.runtime.schedule = training::ScheduleKind::kInterleaved;
  for (plan::Stage& stage : plan_.replicas[1].stages) stage.chunk_layers = {1, 1};
  const ProgramResult run = emulate(4);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output,
              HasSubstr("rank 3: replica 1, stage 1: 2 layers (1 + 1), 2 x 1 samples on slow (d)"));
  EXPECT_THAT(run.output, HasSubstr("acceleration ratio: "));
  EXPECT_THAT(run.output, HasSubstr("ranks 0 and 1, whose stages are on nodes 'a' and 'b', run both on '"));
}

// A device is no faster than alone, so the ratio cannot exceed 100 % where memory is enough.
TEST_F(Emulation, UnequalStagesAndReplicasRunAndTheRatioIsPrinted) {
  for (const training::ScheduleKind schedule :
       {training::ScheduleKind::kOneForwardOneBackward, training::ScheduleKind::kEager,
        training::ScheduleKind::kZeroBubble}) {
    plan_.runtime.schedule = schedule;
    const ProgramResult run = emulate(4, " --log-interval 3");
    ASSERT_EQ(run.exit_status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("rank 1: replica 0, stage 1: 1 layers, 4 x 1 samples on slow (b)"));
    EXPECT_THAT(run.output, HasSubstr("step 6 of 6: "));
    EXPECT_THAT(run.output, HasSubstr("median of 4"));
    EXPECT_THAT(run.output, HasSubstr("c: 2 x fast alone: "));
    std::smatch found;
    ASSERT_TRUE(std::regex_search(
        run.output, found,
        std::regex(R"(acceleration ratio: ([\d.]+) % = ([\d.]+) samples/s measured / ([\d.]+) )")))
        << run.output;
    EXPECT_GT(std::stod(found[1]), 0);
    EXPECT_LE(std::stod(found[1]), 100);
    EXPECT_NEAR(std::stod(found[1]), 100 * std::stod(found[2]) / std::stod(found[3]), 0.01);
  }
}

// The update of a shard is a part of the whole one, and parameters come under the next forward.
TEST_F(Emulation, ShardedOptimizerStatesRunByThePlanAndByFlags) {
  for (auto& [key, cost] : profile_.compute) cost.update = .03;
  plan_.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  const auto update_of_rank_0 = [&](const std::string& flags) {
    const ProgramResult run = emulate(2, flags);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    std::smatch found;
    EXPECT_TRUE(
        std::regex_search(run.output, found, std::regex(R"(step: ([\d.]+) s[^\n]*predicted ([\d.]+) s)")))
        << run.output;
    std::smatch share;
    EXPECT_TRUE(std::regex_search(run.output, share, std::regex(R"(rank 0: [^\n]* updates ([\d.]+) %)")))
        << run.output;
    if (found.empty() || share.empty()) return 0.0;
    // The wait for the whole update of six units is .18 s.
    return std::stod(share[1]) / 100 * std::stod(found[1]);
  };
  EXPECT_NEAR(update_of_rank_0(""), 6 * .03, .002);
  EXPECT_NEAR(update_of_rank_0(" --use-distributed-optimizer"), 3 * .03, .002);
  plan_.runtime.use_distributed_optimizer = true;
  EXPECT_NEAR(update_of_rank_0(""), 3 * .03, .002);
  EXPECT_NEAR(update_of_rank_0(" --optimizer-shard-weights 1 3"), 1.5 * .03, .002);
  plan_.replicas[1].stages[0].optimizer_shard_weight = 2;
  EXPECT_NEAR(update_of_rank_0(""), 2 * .03, .002);
  EXPECT_THAT(emulate(2, " --optimizer-shard-weights 1 3").output,
              HasSubstr("--optimizer-shard-weights and --plan exclude each other"));
}

TEST_F(Emulation, RecomputedAttentionMakesRoomOnADevice) {
  for (auto& [key, cost] : profile_.compute)
    cost.recomputed_attention = {cost.forward / 4, cost.activation_bytes / 4};
  plan::Stage& stage = plan_.replicas[0].stages[0];
  stage.recomputed_layers = 3;
  stage.attention_only = true;
  cluster_.nodes[0].memory_bytes =
      static_cast<int64_t>(plan::peak_memory_bytes({cluster_, model_, profile_, {}}, plan_)[0]);
  const ProgramResult fits = emulate(4);
  ASSERT_EQ(fits.exit_status, 0) << fits.output;
  EXPECT_THAT(fits.output, HasSubstr("acceleration ratio: "));
  stage.recomputed_layers = 2;
  const ProgramResult lacks = emulate(4);
  EXPECT_NE(lacks.exit_status, 0) << lacks.output;
  EXPECT_THAT(lacks.output, HasSubstr("the device of rank 0 would lack "));
}

// The matrix of embedding and head is reduced over both stages of both replicas, whole and in shards.
TEST_F(Emulation, ATiedMatrixIsReducedOverTheRanksOfBothUses) {
  model_.tied_parameter_bytes = {{1, (6 << 20) / 128}, {2, (3 << 20) / 128}};
  for (const char* flags : {"", " --use-distributed-optimizer"}) {
    const ProgramResult run = emulate(4, flags);
    ASSERT_EQ(run.exit_status, 0) << run.output;
    // (8 + 4 x 4 + 8 - 6) MiB / 128, in fp32.
    EXPECT_THAT(run.output, HasSubstr("emulated: small, 53,248 parameters in fp32, gradients in fp32, "));
    EXPECT_THAT(run.output, HasSubstr("acceleration ratio: "));
  }
}

// Both uses are measured with the whole matrix, which the model file says.
TEST_F(Emulation, AProfileOfATiedModelSaysSo) {
  quiet();
  const ProgramResult run = run_forked_train(
      " --profile " + scratch_.path("") +
          " --profile-device fast --profile-micro-batch-sizes 1 --num-layers 1 --hidden-size 32 "
          "--num-attention-heads 4 --ffn-hidden-size 64 --seq-length 16 --tie-embeddings-and-output-weights",
      kTimeLimit);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  const Result<plan::Model> model = plan::read_model(scratch_.path("model.toml"));
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const int64_t tied = model.value().bytes_of(kTiedUnit, 1);
  EXPECT_EQ(tied % (32 * 4), 0);
  EXPECT_GT(tied, 256 * 32 * 4);
  // LLaMA's embedding is nothing else, and its head has the final norm beside it.
  EXPECT_EQ(model.value().bytes_of(0, 1), 0);
  EXPECT_EQ(model.value().bytes_of(2, 1), 32 * 4);
  const Result<plan::Profile> profile = plan::read_profile(scratch_.path("profile.toml"));
  ASSERT_TRUE(profile.is_ok()) << profile.status().message();
  EXPECT_TRUE(plan::check_profile(profile.value(), model.value()).is_ok());
}

// Messages, memory and sums are of the types that the model file names.
TEST_F(Emulation, NumbersAreOfTheTypesOfTheModelFile) {
  const auto emulated = [&](NumberTypes types, const std::string& text) {
    model_.types = types;
    for (const char* flags : {"", " --use-distributed-optimizer"}) {
      const ProgramResult run = emulate(4, flags);
      EXPECT_EQ(run.exit_status, 0) << run.output;
      EXPECT_THAT(run.output, HasSubstr("emulated: small, " + text));
      EXPECT_THAT(run.output, HasSubstr("acceleration ratio: "));
    }
  };
  // 32 MiB / 128.
  emulated({NumberType::kFloat16, NumberType::kFloat16}, "131,072 parameters in fp16, gradients in fp16");
  emulated({NumberType::kBFloat16, NumberType::kFloat32}, "131,072 parameters in bf16, gradients in fp32");
  emulated({NumberType::kFloat64, NumberType::kFloat64}, "32,768 parameters in fp64, gradients in fp64");
}

// What a profile in other types says of the model; its times are those of this machine.
TEST_F(Emulation, AProfileIsOfTheTypesOfItsFlags) {
  quiet();
  struct Case {
    const char* flags;
    NumberTypes types;
    double state_factor;
    double optimizer_factor;
  };
  using enum NumberType;
  // Two moments in the type of the states, and a master where the parameters are not of it; in fp16 also the
  // copy that computes and its gradient, in bf16 the gradients that are added up in fp32.
  for (const Case& each : {Case{"", {kFloat32, kFloat32}, 4, 2}, Case{" --fp64", {kFloat64, kFloat64}, 4, 2},
                           Case{" --fp16", {kFloat16, kFloat16}, 12, 6},
                           Case{" --fp16 --accumulate-allreduce-grads-in-fp32", {kFloat16, kFloat32}, 13, 6},
                           Case{" --bf16", {kBFloat16, kFloat32}, 10, 6},
                           Case{" --bf16 --grad-reduce-in-bf16", {kBFloat16, kBFloat16}, 8, 6}}) {
    const ProgramResult run = run_forked_train(
        " --profile " + scratch_.path("") +
            " --profile-device fast --profile-micro-batch-sizes 1 --num-layers 1 --hidden-size "
            "32 --num-attention-heads 4 --ffn-hidden-size 64 --seq-length 16" +
            each.flags,
        kTimeLimit);
    ASSERT_EQ(run.exit_status, 0) << run.output;
    const Result<plan::Model> model = plan::read_model(scratch_.path("model.toml"));
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    EXPECT_EQ(model.value().types, each.types) << each.flags;
    EXPECT_EQ(model.value().state_factor, each.state_factor) << each.flags;
    EXPECT_EQ(model.value().optimizer_factor, each.optimizer_factor) << each.flags;
    const auto bytes = static_cast<int64_t>(bytes_of(each.types.parameters));
    EXPECT_EQ(model.value().unit(1).parameter_bytes.at(1), bytes * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32));
    EXPECT_EQ(model.value().unit(1).output_bytes, bytes * 16 * 32);
    const Result<plan::Profile> profile = plan::read_profile(scratch_.path("profile.toml"));
    ASSERT_TRUE(profile.is_ok()) << profile.status().message();
    EXPECT_TRUE(plan::check_profile(profile.value(), model.value()).is_ok());
  }
}

TEST_F(Emulation, ADeviceThatCouldNotHoldItsStageIsRefused) {
  cluster_.nodes[3].memory_bytes = 1 << 20;
  const ProgramResult run = emulate(4);
  EXPECT_NE(run.exit_status, 0);
  EXPECT_THAT(run.output, HasSubstr("the device of rank 3 would lack"));
}

TEST_F(Emulation, OtherFilesAndFlagsThatMeanNothingAreRefused) {
  profile_.compute.erase({"slow", "head", 1, 1});
  EXPECT_THAT(emulate(4).output, HasSubstr("layer 'head' is missing for device 'slow'"));
  const std::string profile = scratch_.path("profile.toml");
  const auto refuse = [](const std::string& flags, const std::string& text) {
    quiet();
    expect_refused(run_forked_train(flags, kTimeLimit), 2, text);
  };
  refuse(" --emulate " + profile, "--emulate: expected --plan");
  refuse(" --emulate-model " + profile, "expected --emulate, which names the profile, found none");
  const std::string plan = " --emulate " + profile + " --plan " + scratch_.path("plan.toml");
  refuse(plan + " --fp16", "--fp16: an emulated run (--emulate) has no use for it");
  refuse(plan + " --lr 1", "--lr: an emulated run (--emulate) has no use for it");
  refuse(plan + kText, "--text: an emulated run");
  refuse(plan + " --train-iters 2", "--train-iters 2: expected at least 3 with --emulate");
}

}  // namespace
}  // namespace hdt::training::testing
