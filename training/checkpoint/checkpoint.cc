// checkpoint.cc: opening a folder checks what is cheap (the state, presence and sizes of shards); reading a
// tensor checks the shard's header against the state, and the hash.
#include "training/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/whole_number.h"
#include "training/checkpoint/paths.h"
#include "training/checkpoint/small_file.h"

namespace hdt::training {
namespace {

constexpr size_t kReasonsShown = 5;

// The step that the tracker names; nothing if there is no tracker. An unreadable one is an error.
Result<std::optional<int64_t>> tracked_step(const std::string& save) {
  const std::string path = save + "/" + kTrackerFile;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) return std::optional<int64_t>();
  auto text = read_small_file(path, kMostTrackerBytes);
  if (!text.is_ok()) return text.status();
  std::string_view digits = text.value();
  while (!digits.empty() && (digits.back() == '\n' || digits.back() == ' ')) digits.remove_suffix(1);
  const auto step = whole_number<int64_t>(digits);
  if (!step || *step < 0) return Status(Code::kInvalidArgument, path + " holds no number of an iteration");
  return std::optional<int64_t>(*step);
}

struct Candidate {
  int64_t step = 0;
  bool replaced = false;  // hidden by a save that a kill ended (CheckpointFolder); only where no other is
  std::string folder;
};

// Every folder that could be a checkpoint, best first.
Result<std::vector<Candidate>> candidates_in(const std::string& save) {
  std::vector<Candidate> all;
  std::error_code error;
  std::filesystem::directory_iterator entry(save, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    std::string_view visible = name;
    const bool replaced = visible.starts_with('.') && visible.ends_with(kReplacedSuffix);
    if (replaced) visible = visible.substr(1, visible.size() - 1 - std::string_view(kReplacedSuffix).size());
    const auto step = step_of_iteration(visible);
    if (step) all.push_back({*step, replaced, save + "/" + name});
  }
  if (error == std::errc::no_such_file_or_directory) return all;
  if (error) return Status::from_errno("cannot read the folder " + save, error.value());
  std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : !a.replaced && b.replaced;
  });
  return all;
}

}  // namespace

std::string iteration_folder(const std::string& save, int64_t step) {
  return save + "/" + iteration_name(step);
}

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const std::string path = folder + "/" + kStateFile;
  const auto text = read_small_file(path, kMostStateBytes);
  if (!text.is_ok()) return text.status();
  auto contents = parse_checkpoint_contents(text.value());
  if (!contents.is_ok()) {
    return Status(contents.status().code(), path + ": " + contents.status().message());
  }
  checkpoint.contents_ = contents.take();
  for (const auto& [file, bytes] : checkpoint.contents_.shards) {
    const std::string shard = folder + "/" + file;
    struct stat info {};
    if (::stat(shard.c_str(), &info) != 0) {
      if (errno != ENOENT) return Status::from_errno("cannot stat " + shard, errno);
      return Status(Code::kInvalidArgument, fmt::format("the shard {} of the checkpoint is missing", shard));
    }
    if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != bytes) {
      return Status(Code::kInvalidArgument,
                    fmt::format("the shard {} has {} bytes, the checkpoint was written with {}", shard,
                                info.st_size, bytes));
    }
  }
  return checkpoint;
}

std::optional<uint64_t> Checkpoint::elements(const std::string& name) const {
  const auto found = contents_.tensors.find(name);
  if (found == contents_.tensors.end()) return std::nullopt;
  return element_count(found->second.shape, found->second.dtype);
}

Result<const SafetensorsFile*> Checkpoint::shard(const std::string& file) {
  auto found = open_.find(file);
  if (found == open_.end()) {
    auto opened = SafetensorsFile::open(folder_ + "/" + file);
    if (!opened.is_ok()) return opened.status();
    found = open_.emplace(file, opened.take()).first;
  }
  return &found->second;
}

Status Checkpoint::read(const std::string& name, uint64_t first_element, TypedSpan out) {
  const auto found = contents_.tensors.find(name);
  if (found == contents_.tensors.end()) {
    return {Code::kInvalidArgument, fmt::format("the checkpoint {} has no tensor '{}'", folder_, name)};
  }
  const TensorRecord& record = found->second;
  const auto refused = [&](const std::string& reason) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}/{}: tensor '{}': {}", folder_, record.shard, name, reason));
  };
  if (record.dtype != Dtype::kF32 && record.dtype != Dtype::kF64) {
    return refused(fmt::format("its dtype is {}, expected F32 or F64", dtype_name(record.dtype)));
  }
  const auto file = shard(record.shard);
  if (!file.is_ok()) return file.status();
  const TensorEntry* const entry = file.value()->find(name);
  if (entry == nullptr) return refused(fmt::format("it is not in the file, as {} says", kStateFile));
  if (entry->dtype != record.dtype || entry->shape != record.shape) {
    return refused(fmt::format("its dtype or shape is not that of {}", kStateFile));
  }
  const NumberType stored = record.dtype == Dtype::kF64 ? NumberType::kFloat64 : NumberType::kFloat32;
  const TypedMemory converted = plain_memory(stored, stored == out.type() ? 0 : out.size());
  const TypedSpan read = stored == out.type() ? out : converted.span();
  const auto hash = file.value()->read_hashed(name, first_element, read.bytes());
  if (!hash.is_ok()) return hash.status();
  if (stored != out.type()) convert(read, out);
  if (hash.value() == record.hash) return Status::ok();
  return refused(
      "its bytes are damaged (the SHA-256 is not the one that was stored); use another checkpoint");
}

Result<NewestCheckpoint> open_newest(const std::string& save) {
  NewestCheckpoint newest;
  std::string reasons;  // why others were passed over
  size_t passed_over = 0;
  const auto pass_over = [&](const std::string& reason) {
    if (++passed_over <= kReasonsShown) reasons += (reasons.empty() ? "" : "; ") + reason;
  };
  std::optional<int64_t> tried;
  const auto tracked = tracked_step(save);
  if (!tracked.is_ok()) {
    pass_over(tracked.status().message());
  } else if (tracked.value()) {
    tried = tracked.value();
    auto opened = Checkpoint::open(iteration_folder(save, *tried));
    if (opened.is_ok()) {
      newest.checkpoint = opened.take();
      return newest;
    }
    pass_over(fmt::format("{} names iteration {}: {}", kTrackerFile, *tried, opened.status().message()));
  }
  const auto candidates = candidates_in(save);
  if (!candidates.is_ok()) return candidates.status();
  for (const Candidate& candidate : candidates.value()) {
    if (candidate.step == tried && !candidate.replaced) continue;
    auto opened = Checkpoint::open(candidate.folder);
    if (!opened.is_ok()) {
      pass_over(opened.status().message());
      continue;
    }
    newest.checkpoint = opened.take();
    if (passed_over > 0) newest.warning = fmt::format("{} is taken, as {}", candidate.folder, reasons);
    return newest;
  }
  if (passed_over == 0) return newest;
  return Status(Code::kInvalidArgument, fmt::format("no checkpoint in {} is complete: {}", save, reasons));
}

}  // namespace hdt::training
