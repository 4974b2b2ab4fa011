// saving.h: the checkpoints of a run (--save). Each rank writes its part in the background while training
// goes on; the ranks find out at a step that all have written, and rank 0 publishes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "training/checkpoint/checkpoint_folder.h"
#include "training/checkpoint/checkpoint_saver.h"
#include "training/engine/trainer.h"

namespace hdt::tools {

// One rank's part, used on its training thread. At most one checkpoint is on its way at a time. All ranks
// take the same decisions, as they follow from the step and from sums that all have. A save that has failed
// is a warning of rank 0; the checkpoints before it stay, and the run goes on.
class Saving {
 public:
  // With each step the ranks sum two flags: SIGTERM has come; the own part is written, or has failed.
  static constexpr size_t kSums = 2;

  // `state`: seed and fingerprint; step and samples are filled in later. `newest`: the checkpoint that the
  // run goes on from, or "". Takes the folder's lock on rank 0; `after_loss`: waits a while for it, as the
  // kernel or another node may hold it for a rank that is lost. All ranks of `world` must call it; `flags`
  // and `world` must outlive it. An error is this rank's own, or kAborted because of another one's.
  static Result<std::unique_ptr<Saving>> start(const TrainFlags& flags, training::TrainingState state,
                                               int64_t batch_size, std::string newest, bool after_loss,
                                               Communicator& world);

  // Has memory for this rank's part made ready in the background, so that the first checkpoint of a running
  // training delays it no more than later ones. To be called before the first step.
  void prepare(const training::Optimizer& optimizer);
  // This rank's part of the sums of the next step.
  std::array<double, kSums> sums();
  // To be called after each step with what came back. `done` counts the complete steps. Publishes what all
  // ranks have written; begins the checkpoint of this step if it is due, after the one before. Returns
  // whether the run should stop. An error is one of communication.
  Result<bool> step_done(int64_t done, const std::array<double, kSums>& totals, training::Trainer& trainer);
  // Saves step `done` unless there is a checkpoint of it, and waits until all is published. The status of the
  // last save is in failure().
  Status finish(int64_t done, training::Trainer& trainer);
  // As finish(), without a new checkpoint.
  Status settle();

  // Why the last save has failed; Ok if it has not. The same on all ranks.
  const Status& failure() const { return failure_; }
  // The folder of the newest checkpoint, "" for none. The same on all ranks.
  const std::string& newest() const { return newest_; }

 private:
  Saving(const TrainFlags& flags, training::TrainingState state, int64_t batch_size, std::string newest,
         Communicator& world);
  // Copies this rank's part and has it written. An error is one of communication.
  Status begin(int64_t done, training::Trainer& trainer);
  // Whether this rank's part is at its end.
  bool own_part_ended();
  // All ranks' parts are at their ends: publishes the checkpoint, or reports why there is none.
  Status conclude();
  // On rank 0: the folder, or why there is none.
  Result<std::string> publish(const std::vector<std::string>& reports);

  const TrainFlags& flags_;
  training::TrainingState state_;
  int64_t batch_size_;  // samples of a step
  std::string newest_;
  Communicator& world_;
  std::vector<training::ExpectedTensor> expected_;
  std::unique_ptr<training::CheckpointFolder> folder_;  // rank 0's
  std::unique_ptr<training::CheckpointSaver> saver_;
  std::optional<int64_t> under_way_;                          // the step whose checkpoint is being written
  std::optional<training::CheckpointSaver::Progress> ended_;  // how the own part of it has ended
  int64_t saved_ = -1;                                        // the step of the last one begun
  Status failure_;
};

}  // namespace hdt::tools
