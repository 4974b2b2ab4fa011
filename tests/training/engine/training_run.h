// training_run.h: a whole training run on threads with the plain C++ model, for the tests of the engine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/training/engine/fake_compute.h"
#include "tests/training/engine/thread_messenger.h"
#include "training/engine/trainer.h"

namespace hdt::training::testing {

// Tokens that can be learned: each follows from the one before, with exceptions. A function of (step, index)
// only.
inline void synthetic_sample(int vocab, int64_t step, int64_t index, std::span<int64_t> tokens) {
  uint64_t state = static_cast<uint64_t>(step) * 7919 + static_cast<uint64_t>(index) * 104729 + 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const bool exception = i == 0 || (state >> 60) == 0;
    tokens[i] = exception ? static_cast<int64_t>((state >> 33) % vocab) : (tokens[i - 1] * 3 + 1) % vocab;
  }
}

// A trainer of synthetic samples. `offset` is added to the index of each, for ranks that shall read wrong
// ones.
inline Result<std::unique_ptr<Trainer>> make_trainer(const Layout& layout, int64_t vocab,
                                                     const ModelChunks& chunks, Messenger& messenger,
                                                     const TrainerOptions& options, int64_t offset = 0) {
  return Trainer::create(
      layout, chunks, messenger,
      [vocab, offset](int64_t step, int64_t index, std::span<int64_t> tokens) {
        synthetic_sample(static_cast<int>(vocab), step, index + offset, tokens);
      },
      options);
}

struct RunResult {
  std::vector<StepResult> steps;  // as rank 0 saw them
  // At the end, by replica and unit, in double, which holds every type exactly; behind them the tied matrix
  // as the embedding's rank has it, and as the head's has it.
  std::vector<std::vector<std::vector<double>>> parameters;
  std::vector<size_t> state_elements;  // by rank: of one moment
  int sums_started = 0;
};

// A run of a type with few digits is another one, up to a part of each loss, and its replicas hold one model.
inline void expect_same_training(const RunResult& run, const RunResult& one, double relative) {
  ASSERT_EQ(run.steps.size(), one.steps.size());
  for (size_t step = 0; step < run.steps.size(); ++step) {
    EXPECT_FALSE(run.steps[step].skipped) << step;
    EXPECT_EQ(run.steps[step].tokens, one.steps[step].tokens) << step;
    EXPECT_NEAR(run.steps[step].loss, one.steps[step].loss, relative * one.steps[step].loss) << step;
  }
  for (const auto& replica : run.parameters) EXPECT_EQ(replica, run.parameters.front());
}

// Faults of a rank on purpose.
struct Sabotage {
  std::function<std::unique_ptr<Messenger>(int rank, std::unique_ptr<Messenger>)> messenger;
  std::function<int64_t(int rank)> sample_offset;
};

inline RunResult train(const Layout& layout, const FakeShape& shape, int64_t steps,
                       const TrainerOptions& options, const Sabotage& sabotage = {}) {
  ThreadWorld world(layout);
  RunResult result;
  result.state_elements.resize(layout.world_size());
  result.parameters.resize(layout.num_replicas());
  for (auto& units : result.parameters) units.resize(layout.num_units() + 2);
  run_ranks(layout.world_size(), [&](int rank) {
    const Position position = layout.position_of(rank);
    FakeChunks chunks(shape, layout, rank);
    auto messenger = world.messenger(rank);
    if (sabotage.messenger) messenger = sabotage.messenger(rank, std::move(messenger));
    const int64_t offset = sabotage.sample_offset ? sabotage.sample_offset(rank) : 0;
    auto trainer = make_trainer(layout, shape.vocab, chunks.computes(), *messenger, options, offset);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < steps; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << "rank " << rank << ", step " << step << ": " << done.status().message();
      if (rank == 0) result.steps.push_back(done.value());
    }
    ASSERT_TRUE(trainer.value()->settle().is_ok());
    const Replica& replica = layout.replica(position.replica);
    EXPECT_LE(chunks.greatest_in_flight(),
              most_in_flight(steps_of(options.schedule, replica.stages(), position.stage,
                                      replica.num_micro_batches, replica.chunks)));
    result.state_elements[rank] = trainer.value()->optimizer()->state_elements();
    for (const int unit : trainer.value()->memory().units()) {
      const TypedSpan final = trainer.value()->memory().parameters(unit);
      std::vector<double> parameters(final.size());
      convert(final, parameters);
      std::vector<std::vector<double>>& units = result.parameters[position.replica];
      if (unit != kTiedUnit) {
        units[unit] = std::move(parameters);
        continue;
      }
      if (trainer.value()->memory().contains(layout.embedding_unit())) units[layout.num_units()] = parameters;
      if (trainer.value()->memory().contains(layout.head_unit())) units[layout.num_units() + 1] = parameters;
    }
  });
  result.sums_started = world.sums_started();
  return result;
}

}  // namespace hdt::training::testing
