// checkpoint_folder.cc: the protocol that makes a checkpoint appear whole: shards are synced, then named,
// then index and state are synced, then the folder is renamed, then the tracker is written.
#include "training/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/atomic_file.h"
#include "base/foreign_text.h"
#include "base/host_name.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/paths.h"

namespace hdt::training {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostHolderBytes = 1024;

Status remove_tree(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  return error ? Status::from_errno("cannot remove " + folder, error.value()) : Status::ok();
}

Status rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return Status::ok();
  return Status::from_errno("cannot rename " + from + " to " + to, errno);
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// Whom the lock file names.
std::string holder_in(int file) {
  std::string text(kMostHolderBytes, '\0');
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "a process that has not written its name yet" : to_plain_text(std::move(text));
}

Status write_holder(int file, const std::string& path) {
  const std::string text = fmt::format("process {} on host {}\n", ::getpid(), host_name());
  if (::ftruncate(file, 0) == 0 &&
      ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    return Status::ok();
  }
  return Status::from_errno("cannot write " + path, errno);
}

// The step of ".iter_0000100SUFFIX".
std::optional<int64_t> step_of_hidden(std::string_view name, std::string_view suffix) {
  if (!name.starts_with('.') || !name.ends_with(suffix)) return std::nullopt;
  return step_of_iteration(name.substr(1, name.size() - 1 - suffix.size()));
}

// Removes what runs that were killed have left. A checkpoint that was moved aside gets its name back where
// the one that was to replace it has not arrived.
Status clean_up(const std::string& save) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(save, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error) return Status::from_errno("cannot read the folder " + save, error.value());
  for (const std::string& name : names) {
    const std::string path = save + "/" + name;
    if (const auto step = step_of_hidden(name, kReplacedSuffix)) {
      const std::string visible = iteration_folder(save, *step);
      HDT_RETURN_IF_ERROR(exists(visible) ? remove_tree(path) : rename_path(path, visible));
    } else if (step_of_hidden(name, kWritingSuffix) || step_of_hidden(name, kRemovingSuffix)) {
      HDT_RETURN_IF_ERROR(remove_tree(path));
    } else if (name.starts_with(std::string(kTrackerFile) + ".tmp.")) {  // of write_file_atomically()
      HDT_RETURN_IF_ERROR(remove_tree(path));
    }
  }
  return Status::ok();
}

// Each expected tensor once, with its elements, of its kind.
Status check_complete(const TrainingState& state, std::span<const ShardSummary> summaries,
                      std::span<const ExpectedTensor> expected) {
  const auto mismatch = [&](const std::string& what) {
    return Status(Code::kMismatch, fmt::format("the checkpoint of step {}: {}", state.step, what));
  };
  std::map<std::string_view, const ExpectedTensor*> missing;
  for (const ExpectedTensor& tensor : expected) {
    if (!missing.emplace(tensor.name, &tensor).second) {
      return mismatch(fmt::format("tensor '{}' is expected twice", tensor.name));
    }
  }
  std::map<std::string_view, int> writers;
  std::set<int> ranks;
  for (const ShardSummary& summary : summaries) {
    if (!ranks.insert(summary.rank).second) {
      return mismatch(fmt::format("two ranks say that they are rank {}", summary.rank));
    }
    if (summary.step != state.step) {
      return mismatch(fmt::format("rank {} has written step {}", summary.rank, summary.step));
    }
    for (const WrittenShard& shard : summary.shards) {
      if (shard.file != unpublished_shard_name(shard_kind_name(shard.kind), summary.rank)) {
        return mismatch(fmt::format("rank {} has written a file '{}'", summary.rank, shard.file));
      }
      for (const auto& [name, record] : shard.tensors) {
        const auto [writer, first] = writers.emplace(name, summary.rank);
        if (!first) {
          return mismatch(fmt::format("tensor '{}' was written by rank {} and by rank {}", name,
                                      writer->second, summary.rank));
        }
        const auto found = missing.find(name);
        if (found == missing.end() || found->second->kind != shard.kind) {
          return mismatch(
              fmt::format("rank {} has written tensor '{}' to the {} shards, where it is not "
                          "expected",
                          summary.rank, name, shard_kind_name(shard.kind)));
        }
        const auto elements = element_count(record.shape, record.dtype);
        if (elements != found->second->elements) {
          return mismatch(fmt::format("tensor '{}' of rank {} has {} elements, expected {}", name,
                                      summary.rank, elements.value_or(0), found->second->elements));
        }
        missing.erase(found);
      }
    }
  }
  if (missing.empty()) return Status::ok();
  return mismatch(fmt::format("{} tensors were written by no rank, the first is '{}'", missing.size(),
                              missing.begin()->first));
}

Status check_files(const std::string& folder, std::span<const ShardSummary> summaries) {
  for (const ShardSummary& summary : summaries) {
    for (const WrittenShard& shard : summary.shards) {
      const std::string path = folder + "/" + shard.file;
      struct stat info {};
      if (::stat(path.c_str(), &info) != 0) {
        if (errno != ENOENT) return Status::from_errno("cannot stat " + path, errno);
        return {Code::kInvalidArgument,
                fmt::format("{} of rank {} is not there: is --save on a file system that all nodes share?",
                            path, summary.rank)};
      }
      if (static_cast<uint64_t>(info.st_size) != shard.bytes) {
        return {Code::kInvalidArgument,
                fmt::format("{} has {} bytes, rank {} has written {}: is --save on a file system that all "
                            "nodes share?",
                            path, info.st_size, summary.rank, shard.bytes)};
      }
    }
  }
  return Status::ok();
}

// Gives the shards their final names, in the order of ranks, and lists what the checkpoint holds.
Result<CheckpointContents> name_shards(const std::string& folder, const TrainingState& state,
                                       std::span<const ShardSummary> summaries) {
  CheckpointContents contents;
  contents.state = state;
  std::map<std::pair<ShardKind, int>, const WrittenShard*> order;
  std::map<ShardKind, size_t> count;
  for (const ShardSummary& summary : summaries) {
    for (const WrittenShard& shard : summary.shards) {
      order.emplace(std::pair(shard.kind, summary.rank), &shard);
      ++count[shard.kind];
    }
  }
  std::map<ShardKind, size_t> named;
  for (const auto& [key, shard] : order) {
    const std::string file =
        shard_name(shard_kind_name(shard->kind), ++named[shard->kind], count[shard->kind]);
    HDT_RETURN_IF_ERROR(rename_path(folder + "/" + shard->file, folder + "/" + file));
    contents.shards.emplace(file, shard->bytes);
    for (const auto& [name, record] : shard->tensors) {
      contents.tensors.emplace(name, record).first->second.shard = file;
    }
  }
  return contents;
}

// The index by which Hugging Face's loaders find a tensor's file.
std::string index_text(const CheckpointContents& contents, std::span<const ShardSummary> summaries) {
  uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();
  for (const ShardSummary& summary : summaries) {
    for (const WrittenShard& shard : summary.shards) {
      if (shard.kind != ShardKind::kModel) continue;
      for (const auto& [name, record] : shard.tensors) {
        total += element_count(record.shape, record.dtype).value_or(0) * dtype_bytes(record.dtype);
        map[name] = contents.tensors.at(name).shard;
      }
    }
  }
  return nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}}.dump(2) + "\n";
}

Status check_state(const TrainingState& state) {
  if (state.step < 0 || state.consumed_samples < 0) {
    return {Code::kInvalidArgument, "the state of a checkpoint has a negative step or number of samples"};
  }
  for (const auto& [what, texts] :
       {std::pair{"fingerprint", &state.fingerprint}, std::pair{"settings", &state.settings}}) {
    for (const auto& [key, value] : *texts) {
      if (!is_plain_text(key) || !is_plain_text(value)) {
        return {Code::kInvalidArgument, fmt::format("the {} of a checkpoint: no plain text", what)};
      }
    }
  }
  return Status::ok();
}

Status write_contents(const std::string& folder, const TrainingState& state,
                      std::span<const ShardSummary> summaries, std::span<const ExpectedTensor> expected,
                      const PublishOptions& options) {
  HDT_RETURN_IF_ERROR(check_state(state));
  HDT_RETURN_IF_ERROR(check_complete(state, summaries, expected));
  HDT_RETURN_IF_ERROR(check_files(folder, summaries));
  const auto contents = name_shards(folder, state, summaries);
  if (!contents.is_ok()) return contents.status();
  const std::string text = to_text(contents.value());
  if (text.size() > kMostStateBytes) {
    return {Code::kInvalidArgument, fmt::format("{}/{} has {} bytes, at most {} can be read again", folder,
                                                kStateFile, text.size(), kMostStateBytes)};
  }
  HDT_RETURN_IF_ERROR(
      write_file_atomically(folder + "/" + kIndexFile, index_text(contents.value(), summaries)));
  if (!options.model_config.empty())
    HDT_RETURN_IF_ERROR(write_file_atomically(folder + "/" + kConfigFile, options.model_config));
  return write_file_atomically(folder + "/" + kStateFile, text);
}

}  // namespace

Result<ShardSummary> write_shards(const std::string& save, int64_t step, int rank,
                                  const ShardTensors& tensors, const std::atomic<bool>* stop) {
  ShardSummary summary{step, rank, {}};
  const std::string folder = hidden_folder(save, step, kWritingSuffix);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Status::from_errno("cannot make the folder " + folder, error.value());
  const auto remove_written = [&] {
    for (const WrittenShard& shard : summary.shards) ::unlink((folder + "/" + shard.file).c_str());
    ::rmdir(folder.c_str());  // fails where other ranks have files, which is right
  };
  for (const auto kind : {ShardKind::kModel, ShardKind::kOptimizer}) {
    const auto& views = kind == ShardKind::kModel ? tensors.model : tensors.optimizer;
    if (views.empty()) continue;
    WrittenShard shard{kind, unpublished_shard_name(shard_kind_name(kind), rank), 0, {}};
    // "pt": what Hugging Face's loaders ask for; it says that arrays are as torch keeps them.
    const auto written = write_safetensors(folder + "/" + shard.file, views, {{"format", "pt"}}, stop);
    if (!written.is_ok()) {
      remove_written();
      return written.status();
    }
    shard.bytes = written.value().file_bytes;
    for (size_t i = 0; i < views.size(); ++i) {
      shard.tensors.emplace(
          views[i].name, TensorRecord{shard.file, views[i].dtype, views[i].shape, written.value().hashes[i]});
    }
    summary.shards.push_back(std::move(shard));
  }
  const Status synced = sync_folder(folder);
  if (!synced.is_ok()) {
    remove_written();
    return synced;
  }
  return summary;
}

Status abandon_writing(const std::string& save, int64_t step) {
  return remove_tree(hidden_folder(save, step, kWritingSuffix));
}

Result<std::unique_ptr<CheckpointFolder>> CheckpointFolder::lock(const std::string& save) {
  std::error_code error;
  fs::create_directories(save, error);
  if (error) return Status::from_errno("cannot make the folder " + save, error.value());
  auto folder = std::unique_ptr<CheckpointFolder>(new CheckpointFolder);
  folder->save_ = save;
  const std::string path = save + "/" + kLockFile;
  folder->lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kForAll));
  if (!folder->lock_.valid()) return Status::from_errno("cannot open " + path, errno);
  // The lock goes with the process, however it ends; the file stays, and with it the name of its last holder.
  if (::flock(folder->lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Status::from_errno("cannot lock " + path, errno);
    return Status(Code::kInvalidUsage,
                  fmt::format("another run saves its checkpoints in {}: {} holds {}; name another folder, or "
                              "end that run",
                              save, holder_in(folder->lock_.get()), path));
  }
  HDT_RETURN_IF_ERROR(write_holder(folder->lock_.get(), path));
  HDT_RETURN_IF_ERROR(clean_up(save));
  return folder;
}

// One rename where there is no checkpoint of this step. Otherwise both names are exchanged at once; where the
// file system cannot (NFS), the old one is moved aside first, and open_newest() and clean_up() know its name.
// Returns a warning where the old one could not be removed.
Result<std::string> CheckpointFolder::put_in_place(int64_t step) {
  const std::string writing = hidden_folder(save_, step, kWritingSuffix);
  const std::string removing = hidden_folder(save_, step, kRemovingSuffix);
  const std::string replaced = hidden_folder(save_, step, kReplacedSuffix);
  const std::string folder = iteration_folder(save_, step);
  if (!exists(folder)) {
    HDT_RETURN_IF_ERROR(rename_path(writing, folder));
    HDT_RETURN_IF_ERROR(sync_folder(save_));
    return std::string();
  }
  HDT_RETURN_IF_ERROR(remove_tree(removing));
  HDT_RETURN_IF_ERROR(remove_tree(replaced));
  std::string old = writing;  // where the old one is afterwards
  if (::renameat2(AT_FDCWD, writing.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
      return Status::from_errno("cannot exchange " + writing + " and " + folder, errno);
    }
    HDT_RETURN_IF_ERROR(rename_path(folder, replaced));
    const Status moved = rename_path(writing, folder);
    if (!moved.is_ok()) {
      HDT_RETURN_IF_ERROR(rename_path(replaced, folder));
      return moved;
    }
    old = replaced;
  }
  HDT_RETURN_IF_ERROR(sync_folder(save_));
  Status removed = rename_path(old, removing);
  if (removed.is_ok()) removed = remove_tree(removing);
  return removed.message();
}

// Only complete checkpoints of earlier steps count and are removed: a folder that this program cannot read is
// somebody else's, and one of a later step belongs to a run that went another way.
std::string CheckpointFolder::prune(int64_t step, int keep_latest) {
  if (keep_latest <= 0) return "";
  std::error_code error;
  std::vector<int64_t> earlier;
  for (fs::directory_iterator entry(save_, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const auto other = step_of_iteration(entry->path().filename().string());
    if (other && *other < step && Checkpoint::open(entry->path()).is_ok()) earlier.push_back(*other);
  }
  if (error) return fmt::format("cannot read the folder {}: {}", save_, error.message());
  std::ranges::sort(earlier, std::greater());
  std::string warning;
  for (size_t i = static_cast<size_t>(keep_latest) - 1; i < earlier.size(); ++i) {
    // Hidden first: a kill in between leaves no visible folder with a part of its files.
    const std::string removing = hidden_folder(save_, earlier[i], kRemovingSuffix);
    Status status = remove_tree(removing);
    if (status.is_ok()) status = rename_path(iteration_folder(save_, earlier[i]), removing);
    if (status.is_ok()) status = remove_tree(removing);
    if (!status.is_ok()) warning += (warning.empty() ? "" : "; ") + status.message();
  }
  return warning;
}

Result<PublishedCheckpoint> CheckpointFolder::publish(const TrainingState& state,
                                                      std::span<const ShardSummary> summaries,
                                                      std::span<const ExpectedTensor> expected,
                                                      const PublishOptions& options) {
  const std::string writing = hidden_folder(save_, state.step, kWritingSuffix);
  Status status = write_contents(writing, state, summaries, expected, options);
  if (status.is_ok()) status = sync_folder(writing);
  std::string warning;
  if (status.is_ok()) {
    auto placed = put_in_place(state.step);
    status = placed.status();
    if (status.is_ok()) warning = placed.take();
  }
  if (!status.is_ok()) {
    const Status removed = remove_tree(writing);
    if (removed.is_ok()) return status;
    return Status(status.code(), status.message() + "; " + removed.message());
  }
  HDT_RETURN_IF_ERROR(write_file_atomically(save_ + "/" + kTrackerFile, std::to_string(state.step) + "\n"));
  const std::string pruning = prune(state.step, options.keep_latest);
  warning += (warning.empty() || pruning.empty() ? "" : "; ") + pruning;
  return PublishedCheckpoint{iteration_folder(save_, state.step), warning};
}

}  // namespace hdt::training
