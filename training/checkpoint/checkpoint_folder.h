// checkpoint_folder.h: writes checkpoints. Each rank writes its shards into a hidden folder; when all have,
// rank 0 publishes it by a rename. A kill at any moment leaves the last published checkpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/training_state.h"

namespace hdt::training {

// The tensors that one rank writes. Each tensor of the checkpoint is written by one rank, whole.
struct ShardTensors {
  std::vector<TensorView> model;
  std::vector<TensorView> optimizer;
};

// Writes a rank's shards into SAVE/.iter_X.writing and waits until they are on the disk. Any rank, any
// thread. A failure removes what this rank has written; it is reported as write_safetensors() does.
Result<ShardSummary> write_shards(const std::string& save, int64_t step, int rank,
                                  const ShardTensors& tensors, const std::atomic<bool>* stop = nullptr);
// Removes SAVE/.iter_X.writing after a rank has failed. To be called when no rank writes there any more: by
// rank 0, or by all where the folder is not shared.
Status abandon_writing(const std::string& save, int64_t step);

// A tensor that a complete checkpoint has.
struct ExpectedTensor {
  std::string name;
  uint64_t elements = 0;
  ShardKind kind = ShardKind::kModel;
};

struct PublishOptions {
  int keep_latest = 0;  // how many checkpoints are kept; 0: all
  // The contents of config.json, by which Hugging Face's loaders know the model; "": there is no such file.
  std::string model_config = {};
};

struct PublishedCheckpoint {
  std::string folder;
  std::string warning;  // the checkpoint is good, but an older one could not be removed; "" for none
};

// The folder --save of a run, held by its rank 0: a lock keeps other runs from writing there. Not
// thread-safe.
class CheckpointFolder {
 public:
  // Makes the folder, takes its lock until the object is destroyed, and removes what runs that were killed
  // have left; so no rank may write before. kInvalidUsage: another run holds the lock; the message names its
  // process and host.
  static Result<std::unique_ptr<CheckpointFolder>> lock(const std::string& save);
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Makes the checkpoint of `state.step` of what all ranks have written; `summaries` has one of each rank.
  // Then removes checkpoints of earlier steps beyond options.keep_latest. A checkpoint of the same step is
  // replaced. kMismatch: a tensor is missing, comes twice, is not expected or has another number of elements.
  // kInvalidArgument: a shard is not there with its size, as where the ranks' nodes do not share the folder.
  // kSystem: the disk. A failure removes the hidden folder and leaves published checkpoints as they were.
  Result<PublishedCheckpoint> publish(const TrainingState& state, std::span<const ShardSummary> summaries,
                                      std::span<const ExpectedTensor> expected,
                                      const PublishOptions& options = {});

  const std::string& save() const { return save_; }

 private:
  CheckpointFolder() = default;
  Result<std::string> put_in_place(int64_t step);
  std::string prune(int64_t step, int keep_latest);  // what could not be removed

  std::string save_;
  UniqueFd lock_;
};

}  // namespace hdt::training
