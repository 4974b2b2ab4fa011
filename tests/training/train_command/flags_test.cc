// flags_test.cc: numbers that are none, and flags that are given twice.
#include <regex>
#include <utility>

#include "tests/training/train_command/small_run.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainFlags, WhatIsNoFiniteNumberIsRefusedByFlagAndValue) {
  const auto expect_no_number = [](const std::string& flag, const std::string& value) {
    expect_refused(train(kText + " " + flag + " " + value), 2,
                   flag + ": '" + value + "' given; expected a number from ");
  };
  for (const char* flag : {"--lr", "--min-lr", "--weight-decay", "--adam-beta1", "--adam-beta2", "--adam-eps",
                           "--clip-grad", "--sample-temperature", "--sample-top-p"})
    expect_no_number(flag, "nan");
  for (const char* value : {"inf", "-1", "1e39", "abc"}) expect_no_number("--lr", value);
  expect_refused(train(kText + " --adam-eps 0"), 2, "--adam-eps: '0' given");
  expect_refused(train(kText + " --lr-warmup-iters nan"), 2,
                 "--lr-warmup-iters: 'nan' given; expected a whole number from 0 to 1000000000");
  expect_refused(train(kText + " --train-iters 1e6"), 2,
                 "--train-iters: '1e6' given; expected a whole number");
  expect_refused(train(kText + " --sample-top-p 1.1"), 2,
                 "--sample-top-p: '1.1' given; expected a number from 0 to 1");
  expect_refused(train(kText + " --sample-top-k -1"), 2,
                 "--sample-top-k: '-1' given; expected a whole number from 0");
  expect_refused(train(kText + " --hidden-size 064"), 2,
                 "--hidden-size: '064' given; expected a whole number");
  expect_refused(train(kText + " --seed -1"), 2, "--seed: '-1' given; expected a whole number of at least 0");
  expect_refused(train(kText + " --slow-down 1 nan"), 2, "--slow-down: factor nan given");
  expect_refused(train(kText + " --schedule 1F1B"), 2,
                 "--schedule: '1F1B' given, expected gpipe, 1f1b, eager-1f1b, 1f1b-lockstep, zero-bubble or "
                 "interleaved");
  expect_refused(train(kText + " --micro-batch-size 1 --schedule interleaved"), 2,
                 "--schedule interleaved: every stage has one chunk of the model, expected several: give "
                 "--num-virtual-stages-per-pipeline-rank 2, or use --schedule 1f1b");
  expect_refused(train(" --profile p --profile-device a:nan"), 2, "--profile-device: 'a:nan' given");
}

TEST(TrainFlags, WeightsOfShardsThatDoNotFitAreRefused) {
  const std::string weights = kText + " --use-distributed-optimizer --optimizer-shard-weights ";
  expect_refused(train(kText + " --optimizer-shard-weights 1"), 2,
                 "--optimizer-shard-weights: expected --use-distributed-optimizer, found none");
  for (const char* value : {"nan", "-1", "inf"})
    expect_refused(train(weights + value), 2,
                   std::string("--optimizer-shard-weights: '") + value + "' given");
  expect_refused(train(weights + "1 2"), 2,
                 "--optimizer-shard-weights: 2 weights of shards: expected one for each of the 1 ranks");
  expect_refused(train(weights + "0"), 2, "--optimizer-shard-weights: weights of shards: 0 for all owners");
}

TEST(TrainFlags, RecomputationThatTheEngineDoesNotHaveIsRefused) {
  const std::string full = " --recompute-granularity full";
  const std::pair<std::string, const char*> wrong[] = {
      {" --recompute-num-layers 1",
       "--recompute-num-layers: expected --recompute-granularity full, found none"},
      {" --recompute-method block", "--recompute-method: expected --recompute-granularity full, found none"},
      {" --recompute-granularity some", "--recompute-granularity: 'some' given, expected full or selective"},
      {" --recompute-granularity selective --recompute-method uniform",
       "--recompute-method: expected none with --recompute-granularity selective"},
      {" --recompute-granularity selective --recompute-num-layers 1",
       "--recompute-num-layers: expected none with --recompute-granularity selective"},
      {full, "--recompute-method: none given, expected block or uniform"},
      {full + " --recompute-method some", "--recompute-method: 'some' given, expected block or uniform"},
      {full + " --recompute-method block", "--recompute-num-layers: none given, expected the layers"},
      {full + " --recompute-method uniform --recompute-num-layers 2",
       "--recompute-num-layers: 2 given, expected 1 with --recompute-method uniform"},
      {full + " --recompute-method block --recompute-num-layers 0",
       "--recompute-num-layers: '0' given; expected a whole number from 1"}};
  for (const auto& [flags, reason] : wrong) expect_refused(train(kText + flags), 2, reason);
}

TEST(TrainFlags, DropoutIsAProbabilityBelowOne) {
  for (const char* flag : {"--attention-dropout", "--hidden-dropout"}) {
    for (const char* value : {"1", "-0.1", "nan"})
      expect_refused(train(kText + " " + flag + " " + value), 2,
                     std::string(flag) + ": '" + value + "' given; expected a number from 0 to 0.99");
  }
}

// Recomputed or not, and on one rank or two: the losses with dropout are the same, and others than without.
TEST(TrainFlags, DropoutAndRecomputedAttentionChangeNoLayout) {
  const ScratchDirectory scratch;
  const auto losses = [&](const std::string& name, const std::string& flags, int count = 1) {
    const ProgramResult run = train(kText + " --loss-log " + scratch.path(name) + flags, count);
    EXPECT_EQ(run.exit_status, 0) << run.output;
    return read_losses(scratch.path(name));
  };
  const std::string dropout = " --attention-dropout 0.2 --hidden-dropout 0.1";
  const std::vector<double> one = losses("one", dropout + " --micro-batch-size 6");
  EXPECT_EQ(losses("again", dropout + " --micro-batch-size 6 --recompute-granularity selective"), one);
  EXPECT_NE(losses("none", " --micro-batch-size 6"), one);
  const std::vector<double> two = losses(
      "two", dropout + " --micro-batch-size 2 --pipeline-model-parallel-size 2 --global-batch-size 6", 2);
  ASSERT_EQ(two.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << "step " << i;
}

TEST(TrainFlags, RecomputationIsOfEachStageAndUniformOfEveryLayer) {
  const std::string full = " --micro-batch-size 1 --recompute-granularity full --recompute-method ";
  EXPECT_THAT(train(kText + full + "block --recompute-num-layers 1").output,
              HasSubstr("recomputed layers: replica 0: 1\n"));
  EXPECT_THAT(train(kText + full + "uniform").output, HasSubstr("recomputed layers: replica 0: 2\n"));
  // A stage that has fewer recomputes all.
  const ProgramResult stages =
      train(kText + full + "block --recompute-num-layers 2 --pipeline-model-parallel-size 2", 2);
  EXPECT_EQ(stages.exit_status, 0) << stages.output;
  EXPECT_THAT(stages.output, HasSubstr("recomputed layers: replica 0: 1 + 1\n"));
  EXPECT_THAT(train(kText + " --micro-batch-size 1").output, Not(HasSubstr("recomputed")));
  EXPECT_THAT(train(kText + " --micro-batch-size 1 --recompute-granularity selective").output,
              HasSubstr("recomputed attention of layers: replica 0: 2\n"));
}

TEST(TrainFlags, OfTwoTheLastCounts) {
  const ProgramResult run =
      train(kText +
            " --train-iters 7 --train-iters 3 --log-interval 9 --log-interval 1 --lr 1e9 --lr 1e-4"
            " --micro-batch-size-per-dp 1 8 --micro-batch-size-per-dp 1 2"
            " --num-micro-batches-per-dp 1 1 --num-micro-batches-per-dp 1 3"
            " --slow-down 5 2 --slow-down 1 1 --text /no/such/file" +
            kText);
  EXPECT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("2 layers, 3 x 2 samples; 48 tokens a step"), HasSubstr("step 3/3 | loss"),
                    HasSubstr("lr 1.0e-05"), Not(HasSubstr("step 7"))));
  // The first is looked at all the same.
  expect_refused(train(kText + " --lr nan --lr 1e-4"), 2, "--lr: 'nan' given");
  // A replica each: these add up.
  const ProgramResult stages = train(kText +
                                         " --use-tp-pp-dp-mapping --micro-batch-size 1 "
                                         "--hetero-pipeline-stages 1 2 --hetero-pipeline-stages 1 2",
                                     2);
  EXPECT_EQ(stages.exit_status, 0) << stages.output;
  EXPECT_THAT(stages.output, HasSubstr("replica 1: 2 layers"));
}

TEST(TrainFlags, MegatronsLayoutStringIsTheSplitOfEveryReplica) {
  const ProgramResult run = train(kText +
                                      " --micro-batch-size 1 --pipeline-model-parallel-size 2"
                                      " --pipeline-model-parallel-layout 'Et|tL'",
                                  4);
  EXPECT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("replica 0: 1 + 1 layers"), HasSubstr("replica 1: 1 + 1 layers")));
  expect_refused(train(kText + " --micro-batch-size 1 --pipeline-model-parallel-layout 'Et||tL'"), 2,
                 "--pipeline-model-parallel-layout: stage 2 of 3 holds nothing");
  const ProgramResult alone =
      train(kText + " --micro-batch-size 1 --pipeline-model-parallel-layout 'Ett|L'", 2);
  EXPECT_EQ(alone.exit_status, 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("replica 0: 2 + 0 layers"));
}

TEST(TrainFlags, DivergenceIsCalledSoWithStepAndRank) {
  const std::string diverges = kText + " --lr 1e30 --lr-warmup-iters 0 --micro-batch-size 1";
  const ProgramResult one = train(diverges);
  EXPECT_EQ(one.exit_status, 1) << one.output;
  EXPECT_THAT(one.output,
              AllOf(HasSubstr("hdt-train: training diverged at step 2: loss "), HasSubstr("first on rank 0"),
                    HasSubstr("Try a smaller --lr"), Not(HasSubstr("not allowed"))));
  const ProgramResult two = train(diverges + " --pipeline-model-parallel-size 2", 2);
  EXPECT_NE(two.exit_status, 0);
  EXPECT_THAT(two.output, HasSubstr("training diverged at step 2: loss "));
  EXPECT_EQ(two.output.find("training diverged"), two.output.rfind("training diverged")) << two.output;
}

// The flags of SynerFuse's run.sh that hdt-train has no use for, beside those of the model.
TEST(TrainFlags, WhatChangesNothingIsTakenFromScriptsOfMegatron) {
  const ProgramResult run =
      train(kText +
            " --use-flash-attn --no-position-embedding --swiglu --use-rotary-position-embeddings "
            "--disable-bias-linear --attention-softmax-in-fp32 --lr-decay-style cosine --lr-warmup-fraction "
            ".01 --bf16 "
            "--attention-dropout 0 --hidden-dropout 0 --untie-embeddings-and-output-weights "
            "--sequence-parallel --distributed-backend nccl --initial-loss-scale 65536 --min-loss-scale 1.0 "
            "--loss-scale-window 1024 --transformer-impl transformer_engine --split 1 --timing-log-level 1 "
            "--init-method-std 0.02 --num-query-groups 1 --use-distributed-optimizer");
  EXPECT_EQ(run.exit_status, 0) << run.output;
  EXPECT_THAT(
      run.output,
      AllOf(HasSubstr("without effect: "), HasSubstr("--use-flash-attn (it changes how fast Megatron is)"),
            HasSubstr("--distributed-backend (hdt-train communicates by HDT)"),
            HasSubstr("--min-loss-scale (it belongs to --fp16 without --loss-scale)"),
            HasSubstr("--num-query-groups (as in Megatron, without --group-query-attention)")));
  EXPECT_THAT(run.output, Not(HasSubstr("--init-method-std")));
}

TEST(TrainFlags, WhatMegatronHasAndHdtTrainDoesNotIsRefusedFlagByFlag) {
  expect_refused(
      train(kText + " --fp8-format hybrid --num-experts 8 --init-method-std 0.01 --rampup-batch-size 1 2 3"),
      2,
      "hdt-train does not have what Megatron has by --init-method-std 0.01 (only 0.02); --fp8-format (there "
      "is no fp8); --num-experts (there are no mixtures of experts); --rampup-batch-size (a step's "
      "samples are fixed)");
  expect_refused(train(kText + " --grad-reduce-in-bf16"), 2, "--grad-reduce-in-bf16: expected --bf16");
  expect_refused(train(kText + " --fp64 --bf16"), 2, "--bf16 excludes --fp64");
  expect_refused(train(kText + " --fp64 --fp16"), 2, "--fp16 excludes --fp64");
  expect_refused(train(kText + " --fp16 --initial-loss-scale 2 --min-loss-scale 4"), 2,
                 "--initial-loss-scale 2: expected at least --min-loss-scale 4");
  expect_refused(train(kText + " --fp16 --loss-scale 0"), 2, "--loss-scale");
  expect_refused(train(kText + " --lr-warmup-fraction .1 --lr-warmup-iters 1"), 2, "exclude each other");
  expect_refused(train(kText + " --lr-decay-iters 3 --lr-warmup-iters 4"), 2,
                 "--lr-warmup-iters 4: expected at most --lr-decay-iters 3");
  expect_refused(train(kText + " --lr-decay-style step"), 2,
                 "--lr-decay-style: 'step' given, expected cosine");
}

TEST(TrainFlags, AModelThatIsTooLargeForTheNodeIsRefusedBeforeItTakesMemory) {
  const std::string large =
      " --num-layers 400 --hidden-size 16384 --ffn-hidden-size 65536 --num-attention-heads 128";
  const ProgramResult run = train(kText + large);
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("the ranks of this node need "), HasSubstr("GiB are missing")));
}

// Keys and values of the whole context, of all layers of the first replica only, in the type that computes.
TEST(TrainFlags, KeysAndValuesOfAGeneratedTextAreAmongWhatANodeNeeds) {
  const std::string large =
      " --num-layers 400 --hidden-size 16384 --ffn-hidden-size 65536 --num-attention-heads 128 --seq-length "
      "8192";
  const auto needed = [&](const std::string& flags, int count = 1) {
    const ProgramResult run = train(kText + large + flags, count);
    EXPECT_EQ(run.exit_status, 1) << run.output;
    std::smatch found;
    EXPECT_TRUE(std::regex_search(run.output, found, std::regex(R"(need ([\d.]+) GiB)"))) << run.output;
    EXPECT_EQ(run.output.find("for the keys and values") != std::string::npos,
              flags.find("--sample-tokens") != std::string::npos)
        << run.output;
    return found.empty() ? 0.0 : std::stod(found[1]);
  };
  // 2 x 8192 tokens x 16384 x 4 bytes a layer.
  EXPECT_NEAR(needed(" --sample-tokens 1") - needed(""), 400.0, .02);
  EXPECT_NEAR(needed(" --fp64 --sample-tokens 1") - needed(" --fp64"), 800.0, .02);
  const std::string grouped = " --group-query-attention --num-query-groups 16";
  EXPECT_NEAR(needed(grouped + " --sample-tokens 1") - needed(grouped), 50.0, .02);
  EXPECT_NEAR(needed(" --sample-tokens 1", 2) - needed("", 2), 400.0, .04);
  EXPECT_THAT(train(kText + large + " --sample-tokens 1").output,
              AllOf(HasSubstr("and, 400.00 GiB of it, for the keys and values of a generated text"),
                    HasSubstr("generate no text (--sample-tokens 0)")));
}

}  // namespace
}  // namespace hdt::training::testing
