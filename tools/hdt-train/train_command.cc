// train_command.cc: flags, the job's world, and then the run; what all ranks find wrong alike is printed by
// rank 0 alone.
#include "tools/hdt-train/train_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/run_main.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/elastic.h"
#include "tools/hdt-train/emulation.h"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/job.h"
#include "tools/hdt-train/model_flags.h"
#include "tools/hdt-train/plan_layout.h"
#include "tools/hdt-train/pretrained.h"
#include "tools/hdt-train/profile_job.h"
#include "tools/hdt-train/resume.h"
#include "tools/hdt-train/token_input.h"

namespace hdt::tools {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// One line on standard error; returns the exit status.
int fail(int exit_status, std::string message) {
  std::ranges::replace(message, '\n', ' ');
  fmt::print(stderr, "hdt-train: {}\n", message);
  return exit_status;
}

// Whatever depends on the flags alone is wrong on every rank, so rank 0 prints it for all.
int refuse(int rank, const Status& status) {
  return rank == 0 ? fail(kExitUsage, status.message()) : kExitUsage;
}

// Everything after joining the job. Returns this rank's exit code.
int run(TrainFlags& flags, Communicator& world) {
  const int rank = world.rank();
  flags.layout.world_size = world.size();
  // Profiling needs neither layout nor data.
  if (!flags.profile_folder.empty()) {
    const Status status = run_profile(flags, world);
    if (!status.is_ok()) return fail(kExitFailed, fmt::format("rank {}: {}", rank, status.to_string()));
    return 0;
  }
  const Status slow_down = check_slow_down(flags, flags.layout.world_size);
  if (!slow_down.is_ok()) return refuse(rank, slow_down);
  const Result<training::Layout> layout = make_run_layout(flags);
  if (!layout.is_ok()) return refuse(rank, layout.status());
  const Status placed = warn_of_misplaced_ranks(flags, world);
  if (!placed.is_ok()) return fail(kExitFailed, fmt::format("rank {}: {}", rank, placed.to_string()));
  // An emulated run has neither data nor a model to save.
  if (!flags.emulate.profile.empty()) {
    const Status status = run_emulated(flags, layout.value(), world);
    if (!status.is_ok()) return fail(kExitFailed, fmt::format("rank {}: {}", rank, status.to_string()));
    return 0;
  }
  const Status shards = training::check_shard_options(layout.value(), flags.trainer.shards);
  if (!shards.is_ok()) return refuse(rank, {shards.code(), "--optimizer-shard-weights: " + shards.message()});
  // A rank that cannot read the data must not leave the others waiting in their first operation.
  const Result<TokenInput> input = open_tokens(flags);
  Result<std::optional<training::Checkpoint>> resume = open_resume(flags, rank);
  // The parameters of --load-hf are not needed where a checkpoint has later ones.
  Result<std::optional<training::PretrainedModel>> pretrained =
      resume.is_ok() && resume.value() ? std::optional<training::PretrainedModel>() : open_pretrained(flags);
  Status opened = input.is_ok() ? resume.status() : input.status();
  if (opened.is_ok()) opened = pretrained.status();
  const Status ready = all_ready(opened, world);
  // The rank that has failed says why; the others say only that it has.
  if (!opened.is_ok()) return fail(kExitUsage, fmt::format("rank {}: {}", rank, opened.message()));
  if (!ready.is_ok()) return fail(kExitFailed, fmt::format("rank {}: {}", rank, ready.message()));
  if (resume.value()) {
    // The same on all ranks, unless their nodes do not share the folder. So rank 0 prints it, and another
    // rank only what rank 0 has not found.
    const Status mine = check_resume(*resume.value(), flags, input.value(), layout.value());
    const Result<std::string> of_rank_0 = text_of_rank_0(mine.message(), world);
    if (!mine.is_ok() && of_rank_0.is_ok() && of_rank_0.value() == mine.message()) return refuse(rank, mine);
    if (!mine.is_ok()) return fail(kExitUsage, fmt::format("rank {}: {}", rank, mine.message()));
  }
  bool speaks = false;
  const Result<std::string> wrong =
      run_elastically(flags, input.value(), layout.value(),
                      {std::move(resume.value()), std::move(pretrained.value())}, world, speaks);
  if (!wrong.is_ok()) return fail(kExitFailed, fmt::format("rank {}: {}", rank, wrong.status().to_string()));
  if (wrong.value().empty()) return 0;
  // All ranks know the same, so one prints it.
  return speaks ? fail(kExitFailed, wrong.value()) : kExitFailed;
}

}  // namespace

int run_train_command(int argc, char** argv) {
  return run_main("hdt-train", kExitFailed, [&] {
    ParsedFlags parsed = parse_flags(argc, argv);
    if (parsed.exit_status) return *parsed.exit_status;
    // 0 stands for the library's default. The groups of the layout have the world's deadline.
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    config.timeout_ms = parsed.flags.timeout_minutes * 60'000;
    Communicator world(&config);
    return run(parsed.flags, world);
  });
}

}  // namespace hdt::tools
