// emulation_test.cc: plans on devices that are not there (--emulate).
#include <regex>

#include "base/atomic_file.h"
#include "tests/training/plan/examples.h"
#include "tests/training/train_command/small_run.h"
#include "training/plan/describe/toml_files.h"

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
    return run_program(ranks(count) + HDT_TRAIN + " --emulate " +
                           write("profile.toml", plan::to_toml(profile_)) + " --plan " +
                           write("plan.toml", plan::to_toml(plan_)) + " --train-iters 6" + more,
                       kTimeLimit);
  }

  ScratchDirectory scratch_;
  plan::Profile profile_ = plan::example_profile();
  plan::Model model_ = plan::example_model();
  plan::Cluster cluster_ = plan::example_cluster();
  plan::Plan plan_ = plan::example_plan();
};

// A device is no faster than alone, so the ratio cannot exceed 100 % where memory is enough.
TEST_F(Emulation, UnequalStagesAndReplicasRunAndTheRatioIsPrinted) {
  for (const training::ScheduleKind schedule :
       {training::ScheduleKind::kOneForwardOneBackward, training::ScheduleKind::kZeroBubble}) {
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
    expect_refused(run_program(HDT_TRAIN + flags, kTimeLimit), 2, text);
  };
  refuse(" --emulate " + profile, "--emulate: expected --plan");
  refuse(" --emulate-model " + profile, "expected --emulate, which names the profile, found none");
  const std::string plan = " --emulate " + profile + " --plan " + scratch_.path("plan.toml");
  refuse(plan + " --lr 1", "--lr: an emulated run (--emulate) has no use for it");
  refuse(plan + kText, "--text: an emulated run");
  refuse(plan + " --train-iters 2", "--train-iters 2: expected at least 3 with --emulate");
}

}  // namespace
}  // namespace hdt::training::testing
