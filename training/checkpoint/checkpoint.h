// checkpoint.h: reads checkpoints of a training run. Tensors are found by name, so that a run of any layout
// reads what a run of another layout has written. docs/design/checkpoint.md describes the files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/training_state.h"

namespace hdt::training {

// SAVE/iter_0000100: the folder of the checkpoint after so many steps.
std::string iteration_folder(const std::string& save, int64_t step);

// One complete checkpoint that is open for reading. Not thread-safe: shards are opened when they are first
// read.
class Checkpoint {
 public:
  // Opens SAVE/iter_X. kInvalidArgument: training_state.json is damaged, or a shard is missing or has another
  // size; the message names the file. Shards' contents are checked when they are read.
  static Result<Checkpoint> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const TrainingState& state() const { return contents_.state; }
  const std::map<std::string, TensorRecord>& tensors() const { return contents_.tensors; }
  // Elements of a tensor; nothing if the checkpoint has none of this name.
  std::optional<uint64_t> elements(const std::string& name) const;

  // Fills `out` with the elements of an F32 or F64 tensor from `first_element` on, converted if `out` is of
  // another type. The whole tensor is read and its hash is verified, also for a part. kInvalidArgument names
  // tensor and file: there is none of this name, it is of another type or shorter, or its hash is wrong
  // (`out` then holds what must not be used).
  Status read(const std::string& name, uint64_t first_element, TypedSpan out);

 private:
  Checkpoint() = default;
  Result<const SafetensorsFile*> shard(const std::string& file);

  std::string folder_;
  CheckpointContents contents_;
  std::map<std::string, SafetensorsFile> open_;
};

struct NewestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // nothing: the folder has no checkpoint, or does not exist
  std::string warning;                   // for the user, "" for none
};
// Opens the checkpoint that latest_checkpointed_iteration.txt names. If that one is missing or not complete,
// the complete one of the highest step, with a warning. kInvalidArgument: there are checkpoints, and none is
// complete; the message has the reason of each.
Result<NewestCheckpoint> open_newest(const std::string& save);

}  // namespace hdt::training
