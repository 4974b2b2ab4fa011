// checkpointed_run_test.cc: ranks as threads write a checkpoint while they train on; ranks of other layouts
// go on from its files.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <random>
#include <string>

#include "tests/training/engine/layout_table.h"
#include "tests/training/engine/training_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/checkpoint_folder.h"
#include "training/checkpoint/checkpoint_saver.h"
#include "training/checkpoint/trained_tensor.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kSaved = 5;  // the step after which there is a checkpoint
constexpr int64_t kEnd = 9;
constexpr int64_t kWaitMs = 60'000;  // a bound

TrainerOptions checkpointed_options(const ShardOptions& shards, NumberType type) {
  TrainerOptions result;
  result.gradients = state_type_of(type);
  result.shards = shards;
  result.bucket_elements = 100;
  result.clip_gradient_norm = 0;  // so that the order in which a norm is summed changes no bit
  result.seed = 3;
  result.schedule = ScheduleKind::kInterleaved;  // 1F1B where a stage has one chunk
  result.learning_rate = {.peak = 0.02, .minimum = 0.002, .warmup_steps = 2, .total_steps = kEnd};
  return result;
}

// The tensor as the checkpoint's library knows it.
TrainedTensor trained_tensor(const TensorState& tensor) {
  return {tensor.info->name, Shape(tensor.info->shape.begin(), tensor.info->shape.end()),
          tensor.master,     tensor.first,
          tensor.exp_avg,    tensor.exp_avg_sq};
}

ShardTensors shard_of(const WrittenState& state) {
  ShardTensors shard;
  for (const TensorState& tensor : state.tensors) add_views(trained_tensor(tensor), shard);
  return shard;
}

class CheckpointedRun : public ::testing::Test {
 protected:
  CheckpointedRun() : save_((std::filesystem::temp_directory_path() / "hdt-checkpoint-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(save_.data()), nullptr);
  }
  ~CheckpointedRun() override { std::filesystem::remove_all(save_); }

  // Trains to the end, and writes the state after `saved` steps meanwhile.
  std::vector<double> train_and_save(const Layout& layout, const ShardOptions& shards,
                                     NumberType type = NumberType::kFloat32, int64_t saved = kSaved) {
    std::vector<double> losses;
    std::vector<ShardSummary> summaries(layout.world_size());
    // Before the ranks write: the lock takes what lies there for that of a run that was killed.
    auto folder = CheckpointFolder::lock(save_);
    EXPECT_TRUE(folder.is_ok()) << folder.status().message();
    if (!folder.is_ok()) return losses;
    ThreadWorld world(layout);
    run_ranks(layout.world_size(), [&](int rank) {
      const FakeChunks chunks({.type = type}, layout, rank);
      const auto messenger = world.messenger(rank);
      auto trainer = make_trainer(layout, FakeShape().vocab, chunks.computes(), *messenger,
                                  checkpointed_options(shards, type));
      ASSERT_TRUE(trainer.is_ok());
      auto saver = CheckpointSaver::start(save_, rank);
      ASSERT_TRUE(saver.is_ok());
      for (int64_t step = 0; step < kEnd; ++step) {
        if (step == saved) {
          const Result<WrittenState> state = trainer.value()->state_to_write();
          ASSERT_TRUE(state.is_ok()) << state.status().message();
          ASSERT_TRUE(saver.value()->begin(saved, shard_of(state.value())).is_ok());
        }
        const Result<StepResult> done = trainer.value()->step(step);
        ASSERT_TRUE(done.is_ok());
        if (rank == 0) losses.push_back(done.value().loss);
      }
      ASSERT_TRUE(trainer.value()->settle().is_ok());
      CheckpointSaver::Progress progress = saver.value()->finish(Deadline::after_ms(kWaitMs));
      ASSERT_EQ(progress.phase, CheckpointSaver::Phase::kFinished) << progress.error.message();
      summaries[rank] = std::move(progress.summary);
    });
    publish(layout, *folder.value(), summaries, saved);
    return losses;
  }

  static void publish(const Layout& layout, CheckpointFolder& folder,
                      const std::vector<ShardSummary>& summaries, int64_t saved) {
    std::vector<ExpectedTensor> expected;
    FakeCompute model(FakeShape(), {0, layout.num_units()});
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      for (const TensorInfo& tensor : model.tensors(unit))
        add_expected(tensor.name, tensor.elements(), expected);
    }
    TrainingState state;
    state.step = saved;
    const auto published = folder.publish(state, summaries, expected);
    ASSERT_TRUE(published.is_ok()) << published.status().message();
  }

  // Goes on from the checkpoint.
  std::vector<double> go_on(const Layout& layout, const ShardOptions& shards,
                            NumberType type = NumberType::kFloat32, int64_t saved = kSaved) {
    std::vector<double> losses;
    ThreadWorld world(layout);
    run_ranks(layout.world_size(), [&](int rank) {
      const FakeChunks chunks({.type = type}, layout, rank);
      const auto messenger = world.messenger(rank);
      auto trainer = make_trainer(layout, FakeShape().vocab, chunks.computes(), *messenger,
                                  checkpointed_options(shards, type));
      ASSERT_TRUE(trainer.is_ok());
      auto newest = open_newest(save_);
      ASSERT_TRUE(newest.is_ok()) << newest.status().message();
      ASSERT_TRUE(newest.value().checkpoint);
      Checkpoint& checkpoint = *newest.value().checkpoint;
      ASSERT_EQ(checkpoint.state().step, saved);
      for (const TensorState& tensor : trainer.value()->optimizer()->tensors()) {
        const TypedMemory parameters = plain_memory(tensor.master.type(), tensor.parameters.size());
        TrainedTensor read = trained_tensor(tensor);
        read.parameters = parameters.span();
        ASSERT_TRUE(read_trained(checkpoint, read).is_ok());
        set_parameters(tensor, parameters.span());
      }
      for (int64_t step = saved; step < kEnd; ++step) {
        const Result<StepResult> done = trainer.value()->step(step);
        ASSERT_TRUE(done.is_ok());
        if (rank == 0) losses.push_back(done.value().loss);
      }
      ASSERT_TRUE(trainer.value()->settle().is_ok());
    });
    return losses;
  }

  std::string save_;
};

TEST_F(CheckpointedRun, GoesOnFromWhatRanksWroteWhileTheyTrained) {
  const Layout first(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  const Layout second(4, {{{1, 1, 1, 1}, 1, 7}, {{4}, 5, 1}}, RankOrder::kTpDpPp);
  for (const ShardOptions& saved : {ShardOptions(), ShardOptions{true, {1, 2, 0.5, 0}}}) {
    const std::vector<double> undisturbed = train_and_save(first, saved);
    ASSERT_EQ(undisturbed.size(), static_cast<size_t>(kEnd));
    const std::vector<double> rest(undisturbed.begin() + kSaved, undisturbed.end());
    // The same bits, with whichever shards.
    EXPECT_EQ(go_on(first, saved), rest);
    EXPECT_EQ(go_on(first, {}), rest);
    EXPECT_EQ(go_on(first, {true, {}}), rest);
    for (const ShardOptions& shards : {ShardOptions(), ShardOptions{true, {1, 1, 5, 1, 0}}}) {
      const std::vector<double> other = go_on(second, shards);
      ASSERT_EQ(other.size(), rest.size());
      for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(other[i], rest[i], 1e-5 * rest[i]);
    }
  }
}

// Two stages with two chunks each, beside a replica with one, and back to one range of layers a stage.
TEST_F(CheckpointedRun, ChunksAreNoPartOfACheckpoint) {
  const Layout interleaved(4, {{{1, 1, 1, 1}, 2, 4, 2}, {{3, 1}, 2, 2}}, RankOrder::kTpPpDp);
  const Layout flat(4, {{{2, 2}, 2, 4}, {{4}, 2, 2}}, RankOrder::kTpDpPp);
  for (const ShardOptions& saved : {ShardOptions(), ShardOptions{true, {1, 2, 0.5, 0}}}) {
    const std::vector<double> undisturbed = train_and_save(interleaved, saved);
    ASSERT_EQ(undisturbed.size(), static_cast<size_t>(kEnd));
    const std::vector<double> rest(undisturbed.begin() + kSaved, undisturbed.end());
    EXPECT_EQ(go_on(interleaved, {}), rest);
    const std::vector<double> other = go_on(flat, {});
    ASSERT_EQ(other.size(), rest.size());
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(other[i], rest[i], 1e-5 * rest[i]);
  }
}

// At any step, with the replicas on other stages and the states in other shards, in the same bits.
TEST_F(CheckpointedRun, InFp64ARunGoesOnInTheSameBitsOnOtherStages) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Layout first(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}, {{4}, 1, 3}}, RankOrder::kTpPpDp);
  const Layout second(4, {{{1, 1, 1, 1}, 2, 4, 2}, {{1, 2, 1}, 2, 2}, {{2, 2}, 1, 3}}, RankOrder::kTpDpPp);
  for (int time = 0; time < 4; ++time) {
    const int64_t saved = std::uniform_int_distribution<int64_t>(1, kEnd - 1)(random);
    SCOPED_TRACE(::testing::Message() << "step " << saved);
    const ShardOptions shards = time % 2 == 0 ? ShardOptions() : random_shards(first, random);
    const std::vector<double> undisturbed = train_and_save(first, shards, NumberType::kFloat64, saved);
    ASSERT_EQ(undisturbed.size(), static_cast<size_t>(kEnd));
    const std::vector<double> rest(undisturbed.begin() + saved, undisturbed.end());
    EXPECT_EQ(go_on(first, random_shards(first, random), NumberType::kFloat64, saved), rest);
    EXPECT_EQ(go_on(second, {}, NumberType::kFloat64, saved), rest);
    EXPECT_EQ(go_on(second, random_shards(second, random), NumberType::kFloat64, saved), rest);
    std::filesystem::remove_all(save_);
  }
}

// A run in another type goes on, with what its type can hold.
TEST_F(CheckpointedRun, ACheckpointOfOneTypeIsGoneOnFromInAnother) {
  const Layout layout(4, {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp);
  for (const NumberType from : {NumberType::kFloat32, NumberType::kFloat64, NumberType::kBFloat16}) {
    for (const NumberType to : {NumberType::kFloat32, NumberType::kFloat64, NumberType::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << number_type_name(from) << " to " << number_type_name(to));
      const std::vector<double> undisturbed = train_and_save(layout, {true, {1, 2, 0.5, 0}}, from);
      const std::vector<double> other = go_on(layout, {true, {}}, to);
      ASSERT_EQ(other.size(), static_cast<size_t>(kEnd - kSaved));
      const bool rounded = from == NumberType::kBFloat16 || to == NumberType::kBFloat16;
      for (size_t i = 0; i < other.size(); ++i) {
        const double expected = undisturbed[kSaved + i];
        EXPECT_NEAR(other[i], expected, from == to ? 0 : (rounded ? 1e-2 : 1e-5) * expected);
      }
      std::filesystem::remove_all(save_);
    }
  }
}

}  // namespace
}  // namespace hdt::training::testing
