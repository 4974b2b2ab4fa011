// model_folder.cc: index and headers are compared before anything is read; elements are converted piece by
// piece.
#include "training/checkpoint/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/foreign_json.h"
#include "training/checkpoint/paths.h"
#include "training/checkpoint/small_file.h"
#include "training/checkpoint/tensor_json.h"
#include "training/checkpoint/training_state.h"

namespace hdt::training {
namespace {

constexpr size_t kPieceElements = size_t{1} << 20;  // converted at a time
constexpr size_t kMostShards = 10'000;

Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  const auto text = read_small_file(path, kMostIndexBytes);
  if (!text.is_ok()) return text.status();
  auto map = parse_model_index(text.value());
  if (!map.is_ok()) return Status(map.status().code(), path + ": " + map.status().message());
  return map;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_model_index(std::string_view text) {
  const auto json = parse_foreign_json_once(text, kMostIndexBytes);
  if (!json.is_ok()) return json.status();
  const auto weights = json_object(json.value(), "weight_map");
  if (!weights.is_ok()) return weights.status();
  std::map<std::string, std::string> map;
  std::set<std::string> files;
  for (const auto& [name, file] : weights.value()->items()) {
    if (!is_tensor_name(name)) return Status(Code::kInvalidArgument, "a tensor has a name that is none");
    if (!file.is_string() || !is_shard_file_name(file.get<std::string>()))
      return tensor_refused(name, "its file is no name of a shard");
    files.insert(file.get<std::string>());
    if (files.size() > kMostShards)
      return Status(Code::kInvalidArgument, fmt::format("it has more than {} shards", kMostShards));
    map.emplace(name, file.get<std::string>());
  }
  return map;
}

Result<ModelFolder> ModelFolder::open(const std::string& folder) {
  ModelFolder opened;
  opened.folder_ = folder;
  const auto path_of = [&](const std::string& file) { return folder + "/" + file; };
  std::error_code ignored;
  // The loaders of Hugging Face's library take the single file first as well.
  const bool single = std::filesystem::exists(path_of(kModelFile), ignored);
  std::map<std::string, std::string> index;
  std::set<std::string> files;
  if (single) {
    files.insert(kModelFile);
  } else if (std::filesystem::exists(path_of(kIndexFile), ignored)) {
    auto read = read_index(path_of(kIndexFile));
    if (!read.is_ok()) return read.status();
    index = read.take();
    for (const auto& [name, file] : index) files.insert(file);
  } else {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: there is neither {} nor {}", folder, kModelFile, kIndexFile));
  }
  for (const std::string& name : files) {
    auto file = SafetensorsFile::open(path_of(name));
    if (!file.is_ok()) return file.status();
    const SafetensorsFile& kept = opened.files_.emplace(name, file.take()).first->second;
    for (const auto& [tensor, entry] : kept.header().tensors) {
      const auto listed = index.find(tensor);
      if (!single && (listed == index.end() || listed->second != name))
        return Status(Code::kInvalidArgument, fmt::format("{}: tensor '{}': {} does not have it there",
                                                          kept.path(), tensor, kIndexFile));
      opened.tensors_[tensor] = {&kept, &entry};
    }
  }
  for (const auto& [tensor, file] : index) {
    if (!opened.tensors_.contains(tensor))
      return Status(Code::kInvalidArgument, fmt::format("{}: tensor '{}' is not in the file, as {} says",
                                                        path_of(file), tensor, kIndexFile));
  }
  return opened;
}

Status ModelFolder::read(const std::string& name, TypedSpan out) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return {Code::kInvalidArgument, fmt::format("{}: there is no tensor '{}'", folder_, name)};
  const auto& [file, entry] = found->second;
  const auto refused = [&, file = file](const std::string& reason) {
    return Status(Code::kInvalidArgument, fmt::format("{}: tensor '{}': {}", file->path(), name, reason));
  };
  if (entry->elements != out.size())
    return refused(fmt::format("it has {} elements, expected {}", entry->elements, out.size()));
  const std::optional<NumberType> stored = number_type_of(entry->dtype);
  if (!stored)
    return refused(fmt::format("its dtype is {}, expected F32, BF16, F16 or F64", dtype_name(entry->dtype)));
  if (*stored == out.type()) return file->read(name, 0, out.bytes());
  const TypedMemory memory = plain_memory(*stored, std::min(kPieceElements, out.size()));
  for (size_t at = 0; at < out.size(); at += kPieceElements) {
    const TypedSpan piece = memory.span().subspan(0, std::min(kPieceElements, out.size() - at));
    HDT_RETURN_IF_ERROR(file->read(name, at, piece.bytes()));
    convert(piece, out.subspan(at, piece.size()));
  }
  return Status::ok();
}

}  // namespace hdt::training
