// training_state.h: what a checkpoint says about itself (training_state.json), and what a rank says about the
// shards that it wrote. Both are JSON that is validated when it is read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "training/checkpoint/safetensors_header.h"
#include "training/numbers/loss_scaler.h"

namespace hdt::training {

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr size_t kMostStateBytes = 100'000'000;

// Where training stands. The trainer fills it in; the checkpoint only keeps it.
struct TrainingState {
  int64_t step = 0;  // steps that are done, so the next one has this number
  uint64_t seed = 0;
  int64_t consumed_samples = 0;  // the sampler's position
  // Values that a run must have in common with the one that it continues, such as sizes of the model and the
  // dataset, as "hidden_size" -> "128". The trainer compares and refuses.
  std::map<std::string, std::string> fingerprint;
  // Values that a run may change when it goes on, such as the learning rate: "lr" -> "0.001". The trainer
  // reports what differs. Empty in checkpoints of versions that had none.
  std::map<std::string, std::string> settings = {};
  // Of runs that scale their loss, or have skipped steps; else as it is made.
  LossScaleState loss_scale = {};
};

// Parameters go to model-*.safetensors, which are a folder for Hugging Face without the rest; moments of the
// optimizer go to optimizer-*.safetensors.
enum class ShardKind : uint8_t { kModel, kOptimizer };
const char* shard_kind_name(ShardKind kind);  // "model", "optimizer": the beginning of the file's name

// torch's names of AdamW's moments of a tensor: NAME.exp_avg, NAME.exp_avg_sq.
inline constexpr char kFirstMomentSuffix[] = ".exp_avg";
inline constexpr char kSecondMomentSuffix[] = ".exp_avg_sq";

struct TensorRecord {
  std::string shard;  // the file's name in the folder
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::string hash;  // SHA-256 of its bytes, 64 hex digits
};

// One file of a rank, under the name that it has until the checkpoint is published.
struct WrittenShard {
  ShardKind kind = ShardKind::kModel;
  std::string file;
  uint64_t bytes = 0;
  std::map<std::string, TensorRecord> tensors;  // TensorRecord::shard is `file`
};

// The shards that one rank has written, to be gathered on rank 0. Without tensors it has no shards.
struct ShardSummary {
  int64_t step = 0;
  int rank = 0;
  std::vector<WrittenShard> shards;
};
std::string to_text(const ShardSummary& summary);
// kInvalidArgument says what is wrong.
Result<ShardSummary> parse_shard_summary(std::string_view text);

// The contents of training_state.json.
struct CheckpointContents {
  TrainingState state;
  std::map<std::string, uint64_t> shards;  // file -> bytes
  std::map<std::string, TensorRecord> tensors;
};
std::string to_text(const CheckpointContents& contents);
// kInvalidArgument says what is wrong; kVersion: a later version of HDT wrote it.
Result<CheckpointContents> parse_checkpoint_contents(std::string_view text);

}  // namespace hdt::training
