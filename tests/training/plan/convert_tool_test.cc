// convert_tool_test.cc: `hdt-plan convert` as its users run it.
#include "tests/training/plan/plan_tool.h"

namespace hdt::plan {
namespace {

using ::testing::HasSubstr;

TEST_F(HdtPlanFiles, ConvertGoesFromAScriptToAPlanAndBack) {
  training::write_all(file("run.sh"),
                      "ARGS=(\n  --hetero-pipeline-stages 1 3 1 1\n  --micro-batch-size 1 --lr 0.1\n)\n");
  const std::vector<std::string> convert = {
      "convert", "--from", "megatron-fork",      file("run.sh"), "--to",
      "toml",    "-c",     file("cluster.toml"), "--output",     file("new.toml")};
  const auto plan = hdt_plan(convert);
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.err, "hdt-plan: warning: left out, as they say nothing of the layout: --lr\n");
  const auto predicted = hdt_plan({"predict", file("new.toml"), "-p", file("profile.toml"), "-c",
                                   file("cluster.toml"), "-m", file("model.toml")});
  EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
  // Two replicas have both stages on fast devices, and two on slow ones, as ranks go stage by stage.
  const auto flags = hdt_plan({"convert", "--from", "toml", file("new.toml"), "--to", "megatron-layout"});
  EXPECT_EQ(flags.exit_code, 0) << flags.err;
  EXPECT_EQ(flags.out,
            "--num-layers 4 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*3|tL' "
            "--micro-batch-size 1 --global-batch-size 4 --use-tp-pp-dp-mapping\n");
  EXPECT_EQ(flags.err, "hdt-plan: warning: the flags do not say the number of replicas: start 8 ranks\n");
  // Flags behind -- count after those of the file, or stand alone.
  auto more = convert;
  more.resize(8);
  more.insert(more.end(), {"--", "--micro-batch-size", "2"});
  EXPECT_THAT(hdt_plan(more).out, HasSubstr("micro_batch_size = 2"));
  more = {"convert", "--from", "megatron-fork", "--to", "megatron-layout", "--ranks", "1", "--"};
  more.insert(more.end(), {"--num-layers", "2", "--micro-batch-size", "1"});
  EXPECT_THAT(hdt_plan(more).out, HasSubstr(" EttL "));
}

TEST_F(HdtPlanFiles, ConvertRefusesWithFileAndReason) {
  expect_refused(hdt_plan({"convert", "--from", "toml", file("plan.toml"), "--to", "flagscale"}),
                 "--to flagscale: replica 2: split into 2 + 2 layers, replica 1 into 3 + 1");
  expect_refused(hdt_plan({"convert", "--from", "toml", "--to", "flagscale"}), "--from toml: no file given");
  expect_refused(hdt_plan({"convert", "--from", "toml", file("plan.toml"), "--to", "toml", "--", "--lr"}),
                 "takes no flags behind --");
  expect_refused(hdt_plan({"convert", "--from", "yaml", file("plan.toml"), "--to", "toml"}), "--from");
  expect_refused(hdt_plan({"convert", "--from", "flagscale", file("none"), "--to", "toml"}), "none: ");
  training::write_all(file("run.sh"), "--num-layers 4 --micro-batch-size '1");
  expect_refused(hdt_plan({"convert", "--from", "megatron-fork", file("run.sh"), "--to", "toml"}),
                 "run.sh: line 1: a ' is open at the end");
  expect_refused(
      hdt_plan({"convert", "--from", "toml", file("plan.toml"), "--to", "toml", "--output", "/none/x"}),
      "--output: ");
}

}  // namespace
}  // namespace hdt::plan
