// paths.h: the names of files and folders below --save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hdt::training {

inline constexpr char kStateFile[] = "training_state.json";
inline constexpr char kIndexFile[] = "model.safetensors.index.json";         // Hugging Face's name
inline constexpr char kModelFile[] = "model.safetensors";                    // and this, where there is one
inline constexpr char kConfigFile[] = "config.json";                         // and this
inline constexpr char kTrackerFile[] = "latest_checkpointed_iteration.txt";  // Megatron's name
inline constexpr char kLockFile[] = ".hdt-train.lock";
inline constexpr size_t kMostTrackerBytes = 64;
// A hidden folder, in which the ranks of a run find out who of them is left after a loss (hdt-train
// --elastic).
inline constexpr char kElasticPrefix[] = ".elastic-";

// Hidden folders are ".iter_0000100" with one of these: written at present; replaced by another of its step
// where a file system cannot exchange names; being removed.
inline constexpr char kWritingSuffix[] = ".writing";
inline constexpr char kReplacedSuffix[] = ".replaced";
inline constexpr char kRemovingSuffix[] = ".removing";

std::string iteration_name(int64_t step);                         // "iter_0000100", Megatron's name
std::optional<int64_t> step_of_iteration(std::string_view name);  // nothing for another name
// SAVE/.iter_0000100SUFFIX.
std::string hidden_folder(const std::string& save, int64_t step, const char* suffix);

// Whether a name that was read may be a file in the folder itself: no path, nothing hidden.
bool is_shard_file_name(std::string_view name);

// "model-00001-of-00004.safetensors"; `number` counts from 1.
std::string shard_name(std::string_view kind, size_t number, size_t count);
// The name of a rank's shard until the checkpoint is published: "model.rank-00007.safetensors".
std::string unpublished_shard_name(std::string_view kind, int rank);

}  // namespace hdt::training
