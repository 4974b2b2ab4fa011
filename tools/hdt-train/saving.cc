// saving.cc: the protocol of a checkpoint: copy, write in the background, let all know, gather, publish.
#include "tools/hdt-train/saving.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/resume.h"
#include "tools/hdt-train/stop_signal.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/trained_tensor.h"
#include "training/torch/hugging_face_config.h"
#include "training/torch/tensor_names.h"

namespace hdt::tools {
namespace {

using training::CheckpointSaver;
using training::TensorState;

// The first letter of what a rank reports of its part.
constexpr char kWritten = '+';
constexpr char kFailed = '-';

// Ranks that wait for the slowest disk meet each second, so no operation comes near its deadline.
constexpr int64_t kRoundMs = 1000;
constexpr int kMostRounds = 4 * 3600;

training::ShardTensors shard_of(const training::WrittenState& state) {
  training::ShardTensors tensors;
  for (const TensorState& tensor : state.tensors) training::add_views(trained_tensor(tensor), tensors);
  return tensors;
}

std::vector<training::ExpectedTensor> expected_tensors(const training::ModelShape& shape) {
  std::vector<training::ExpectedTensor> expected;
  for (const training::TensorInfo& tensor : training::model_tensors(shape))
    training::add_expected(tensor.name, tensor.elements(), expected);
  return expected;
}

// A process that has been killed holds its lock until the kernel has closed its files; a node that is gone
// holds one of NFS until its lease has ended, which is 90 s by default.
constexpr int64_t kLockWaitMs = 120'000;

// After another loss nobody waits: the ranks that are left look for each other.
Result<std::unique_ptr<training::CheckpointFolder>> lock_folder(const std::string& save, bool waits,
                                                                const Communicator& world) {
  const Deadline deadline = Deadline::after_ms(waits ? kLockWaitMs : 0);
  for (;;) {
    Result<std::unique_ptr<training::CheckpointFolder>> folder = training::CheckpointFolder::lock(save);
    if (folder.is_ok() || folder.status().code() != Code::kInvalidUsage || deadline.expired() ||
        world.async_error() != HDT_SUCCESS)
      return folder;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// A run that starts anew where another one has saved: both would be in one folder.
void warn_of_older_run(const TrainFlags& flags) {
  if (!flags.load.empty()) return;
  const Result<training::NewestCheckpoint> older = training::open_newest(flags.save);
  if (!older.is_ok() || !older.value().checkpoint) return;
  fmt::print(
      stderr,
      "hdt-train: warning: --save {}: there is a checkpoint of step {}, but no --load: training starts "
      "anew and replaces it step by step\n",
      flags.save, older.value().checkpoint->state().step);
}

}  // namespace

Saving::Saving(const TrainFlags& flags, training::TrainingState state, int64_t batch_size, std::string newest,
               Communicator& world)
    : flags_(flags),
      state_(std::move(state)),
      batch_size_(batch_size),
      newest_(std::move(newest)),
      world_(world),
      expected_(expected_tensors(flags.shape)) {}

Result<std::unique_ptr<Saving>> Saving::start(const TrainFlags& flags, training::TrainingState state,
                                              int64_t batch_size, std::string newest, bool after_loss,
                                              Communicator& world) {
  const auto failed = [](const Status& status) {
    return Status(status.code(), "--save: " + status.message());
  };
  std::unique_ptr<Saving> saving(new Saving(flags, std::move(state), batch_size, std::move(newest), world));
  const int rank = world.rank();
  Status mine;
  if (rank == 0) {
    Result<std::unique_ptr<training::CheckpointFolder>> folder = lock_folder(flags.save, after_loss, world);
    if (folder.is_ok()) {
      saving->folder_ = folder.take();
      if (!after_loss) warn_of_older_run(flags);
    } else {
      mine = failed(folder.status());
    }
  }
  HDT_RETURN_IF_ERROR(all_ready(mine, world));
  // The folder is there now, for every rank that shares it.
  std::error_code ignored;
  if (!std::filesystem::is_directory(flags.save, ignored)) {
    mine =
        Status(Code::kInvalidArgument,
               fmt::format("--save {}: rank 0 has made this folder, and rank {} does not see it; expected a "
                           "folder that all nodes share",
                           flags.save, rank));
  } else {
    Result<std::unique_ptr<CheckpointSaver>> saver = CheckpointSaver::start(flags.save, rank);
    if (saver.is_ok()) {
      saving->saver_ = saver.take();
    } else {
      mine = failed(saver.status());
    }
  }
  HDT_RETURN_IF_ERROR(all_ready(mine, world));
  catch_stop_signal();
  return saving;
}

// A checkpoint has three states of each tensor, its master and two moments. One at the end delays nobody.
void Saving::prepare(const training::Optimizer& optimizer) {
  if (flags_.save_interval == 0) return;
  const auto [tensors, bytes] = optimizer.size_to_write();
  saver_->prepare(3 * tensors, 3 * bytes);
}

std::array<double, Saving::kSums> Saving::sums() {
  return {stop_requested() ? 1.0 : 0.0, own_part_ended() ? 1.0 : 0.0};
}

Result<bool> Saving::step_done(int64_t done, const std::array<double, kSums>& totals,
                               training::Trainer& trainer) {
  if (under_way_ && totals[1] == world_.size()) HDT_RETURN_IF_ERROR(conclude());
  if (flags_.save_interval > 0 && done % flags_.save_interval == 0) {
    HDT_RETURN_IF_ERROR(settle());
    HDT_RETURN_IF_ERROR(begin(done, trainer));
  }
  return totals[0] > 0;
}

Status Saving::finish(int64_t done, training::Trainer& trainer) {
  HDT_RETURN_IF_ERROR(settle());
  // A save of this very step that has failed is tried again: space may have been made.
  if (saved_ != done || !failure_.is_ok()) HDT_RETURN_IF_ERROR(begin(done, trainer));
  return settle();
}

// The rounds are the same on all ranks, so all give up in the same one.
Status Saving::settle() {
  if (!under_way_) return Status::ok();
  for (int round = 0; round < kMostRounds; ++round) {
    if (!own_part_ended()) {
      CheckpointSaver::Progress progress = saver_->finish(Deadline::after_ms(kRoundMs));
      if (progress.phase != CheckpointSaver::Phase::kWriting) ended_ = std::move(progress);
    }
    const Result<bool> waits = any_rank(!ended_, world_);
    if (!waits.is_ok()) return waits.status();
    if (!waits.value()) return conclude();
  }
  return {Code::kTimeout, fmt::format("--save {}: the checkpoint of step {} was not written in {} s",
                                      flags_.save, *under_way_, kMostRounds * kRoundMs / 1000)};
}

// Moments that are gathered from other ranks are needed until the saver has its copy.
Status Saving::begin(int64_t done, training::Trainer& trainer) {
  under_way_ = saved_ = done;
  ended_.reset();
  state_.loss_scale = trainer.loss_scale_state();
  const Result<training::WrittenState> state = trainer.state_to_write();
  if (!state.is_ok()) return state.status();
  const Status begun = saver_->begin(done, shard_of(state.value()));
  if (!begun.is_ok()) ended_ = CheckpointSaver::Progress{CheckpointSaver::Phase::kFailed, {}, begun};
  return Status::ok();
}

bool Saving::own_part_ended() {
  if (!under_way_) return false;
  if (!ended_) {
    CheckpointSaver::Progress progress = saver_->poll();
    if (progress.phase != CheckpointSaver::Phase::kWriting) ended_ = std::move(progress);
  }
  return ended_.has_value();
}

// Rank 0 lets all know the outcome, as each names the newest checkpoint should the run fail.
Status Saving::conclude() {
  const bool written = ended_->phase == CheckpointSaver::Phase::kFinished;
  const Result<std::vector<std::string>> reports =
      gather_texts(written ? kWritten + to_text(ended_->summary) : kFailed + ended_->error.message(), world_);
  if (!reports.is_ok()) return reports.status();
  std::string outcome;
  if (world_.rank() == 0) {
    const Result<std::string> folder = publish(reports.value());
    outcome = folder.is_ok() ? kWritten + folder.value() : kFailed + folder.status().message();
  }
  const Result<std::string> known = text_of_rank_0(outcome, world_);
  if (!known.is_ok()) return known.status();
  const std::string text = known.value().substr(1);
  if (known.value().front() == kWritten) {
    newest_ = text;
    failure_ = Status::ok();
  } else {
    failure_ = Status(Code::kSystem,
                      fmt::format("--save {}: no checkpoint of step {}: {}", flags_.save, *under_way_, text));
    if (world_.rank() == 0) {
      fmt::print(stderr, "hdt-train: warning: {}; newest checkpoint: {}\n", failure_.message(),
                 newest_.empty() ? "none" : newest_);
    }
  }
  under_way_.reset();
  ended_.reset();
  return Status::ok();
}

Result<std::string> Saving::publish(const std::vector<std::string>& reports) {
  std::vector<training::ShardSummary> summaries;
  std::string failures;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const std::string text = reports[rank].substr(1);
    if (reports[rank].front() == kFailed) {
      failures += fmt::format("{}rank {}: {}", failures.empty() ? "" : "; ", rank, text);
      continue;
    }
    Result<training::ShardSummary> summary = training::parse_shard_summary(text);
    if (!summary.is_ok()) return summary.status();
    summaries.push_back(summary.take());
  }
  if (!failures.empty()) {
    const Status removed = training::abandon_writing(flags_.save, *under_way_);
    if (!removed.is_ok()) failures += "; " + removed.message();
    return Status(Code::kSystem, failures);
  }
  state_.step = *under_way_;
  state_.consumed_samples = *under_way_ * batch_size_;
  Result<training::PublishedCheckpoint> published = folder_->publish(
      state_, summaries, expected_,
      {.keep_latest = flags_.keep_checkpoints,
       .model_config = training::model_config_text(flags_.shape, training::state_type_of(flags_.type))});
  if (!published.is_ok()) return published.status();
  if (!published.value().warning.empty())
    fmt::print(stderr, "hdt-train: warning: --save: {}\n", published.value().warning);
  return published.value().folder;
}

}  // namespace hdt::tools
