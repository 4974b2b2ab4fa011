// model_folder.h: the tensors of a model in a folder as Hugging Face's library writes it: model.safetensors,
// or shards with model.safetensors.index.json. Only parameters, and no state of a training run.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "training/checkpoint/safetensors.h"

namespace hdt::training {

inline constexpr size_t kMostIndexBytes = 100'000'000;

// Which tensor is in which file: the "weight_map" of an index. kInvalidArgument says what is wrong, such as a
// file's name that leads out of the folder.
Result<std::map<std::string, std::string>> parse_model_index(std::string_view text);

// A folder that is open for reading. The headers of all files are read at once, and data when they are asked
// for. The functions are const, for any number of threads.
class ModelFolder {
 public:
  // kSystem, kInvalidArgument: there is neither model.safetensors nor an index, a file is missing or damaged,
  // or index and files do not say the same. The message names file and tensor.
  static Result<ModelFolder> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  // Where each tensor is. The pointers stay valid as long as the folder is not moved from.
  struct Place {
    const SafetensorsFile* file = nullptr;
    const TensorEntry* entry = nullptr;
  };
  const std::map<std::string, Place>& tensors() const { return tensors_; }

  // Fills `out`, which has as many elements as the tensor, from F32, BF16, F16 or F64, converted if `out` is
  // of another type. kInvalidArgument: there is none of this name, or it is of another type or size.
  Status read(const std::string& name, TypedSpan out) const;

 private:
  ModelFolder() = default;

  std::string folder_;
  std::map<std::string, SafetensorsFile> files_;  // by name; a map's elements do not move
  std::map<std::string, Place> tensors_;
};

}  // namespace hdt::training
