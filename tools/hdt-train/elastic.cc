// elastic.cc: from a loss to the next layout.
#include "tools/hdt-train/elastic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/whole_number.h"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/census_folder.h"
#include "tools/hdt-train/pretrained.h"
#include "tools/hdt-train/resume.h"
#include "tools/hdt-train/run_summary.h"
#include "tools/hdt-train/survivors.h"
#include "training/checkpoint/checkpoint.h"
#include "training/engine/hdt_messenger.h"
#include "training/engine/hdt_operation.h"

namespace hdt::tools {
namespace {

using std::chrono::milliseconds;
using training::Layout;

// A rank that lives writes four times a second from the failure on (world_watch.h).
constexpr auto kPatience = milliseconds(5000);
// For a group of ranks that have all said that they come.
constexpr int64_t kShrinkMs = 10'000;
// Each attempt that fails has lost another rank meanwhile.
constexpr int kMostAttempts = 5;

// The world's deadline as hdt.h has it: that of the flag, of the variable, or 10 minutes.
int64_t timeout_ms(const TrainFlags& flags) {
  if (flags.timeout_minutes > 0) return flags.timeout_minutes * 60'000;
  const char* const given = std::getenv("HDT_TIMEOUT_MS");
  const std::optional<int64_t> value = given == nullptr ? std::nullopt : whole_number<int64_t>(given);
  return value && *value > 0 ? *value : 600'000;
}

// Rank 0's checkpoint of before may be in the folder of --save; another run's must not, as nobody could tell
// them apart later.
Status check_save_folder(const TrainFlags& flags, const std::optional<training::Checkpoint>& resume) {
  const Result<training::NewestCheckpoint> newest = training::open_newest(flags.save);
  if (newest.is_ok() && !newest.value().checkpoint) return Status::ok();
  if (newest.is_ok() && resume && newest.value().checkpoint->folder() == resume->folder())
    return Status::ok();
  return {
      Code::kInvalidArgument,
      fmt::format("--elastic: --save {} has checkpoints of another run, from which this one must not go on "
                  "after a loss: give --load {} to go on from them, or another folder",
                  flags.save, flags.save)};
}

// The checkpoint of this run, or what it has begun with. Rank 0 looks for it, and the others take the same
// one: a client of NFS may see an older state of the folder for a minute.
Result<Origin> open_origin(TrainFlags& flags, const TokenInput& input, const Layout& layout,
                           Communicator& world) {
  std::string folder;
  Status found;
  if (world.rank() == 0) {
    const Result<training::NewestCheckpoint> newest = training::open_newest(flags.save);
    if (!newest.is_ok()) {
      found = {newest.status().code(), "--save: " + newest.status().message()};
    } else {
      if (newest.value().checkpoint) folder = newest.value().checkpoint->folder();
      if (!newest.value().warning.empty())
        fmt::print(stderr, "hdt-train: warning: --save: {}\n", newest.value().warning);
    }
  }
  HDT_RETURN_IF_ERROR(all_ready(found, world));
  const Result<std::string> of_rank_0 = text_of_rank_0(folder, world);
  if (!of_rank_0.is_ok()) return of_rank_0.status();
  Origin origin;
  const auto open = [&]() -> Status {
    if (!of_rank_0.value().empty()) {
      flags.load = flags.save;
      Result<training::Checkpoint> checkpoint = training::Checkpoint::open(of_rank_0.value());
      if (!checkpoint.is_ok()) return checkpoint.status();
      origin.resume = checkpoint.take();
    } else {
      Result<std::optional<training::Checkpoint>> resume = open_resume(flags, world.rank());
      if (!resume.is_ok()) return resume.status();
      origin.resume = resume.take();
    }
    if (origin.resume) return check_resume(*origin.resume, flags, input, layout);
    Result<std::optional<training::PretrainedModel>> pretrained = open_pretrained(flags);
    if (pretrained.is_ok()) origin.pretrained = pretrained.take();
    return pretrained.status();
  };
  HDT_RETURN_IF_ERROR(all_ready(open(), world));
  return origin;
}

// What the run is before a loss. Numbers of ranks in sets are those of the first world.
struct Present {
  const Layout& layout;
  const std::set<int>& lost;
  Communicator& world;
};

// One rank speaks for all that are left: in the numbers of its present layout.
void announce(const Present& present, const std::set<int>& lost, const training::ElasticLayout& made,
              const RankSpeeds& ranked, const Origin& origin) {
  const std::vector<int> before = ranks_left(static_cast<int>(made.new_ranks.size()), present.lost);
  std::vector<std::string> places;
  std::vector<std::string> numbers;
  for (size_t rank = 0; rank < before.size(); ++rank) {
    const int now = made.new_ranks[static_cast<size_t>(before[rank])];
    if (lost.contains(before[rank])) places.push_back(place_text(static_cast<int>(rank), present.layout));
    if (now >= 0 && now != static_cast<int>(rank))
      numbers.push_back(fmt::format("rank {} is rank {} now", rank, now));
  }
  fmt::print("elastic: goes on without {}: {} of {} ranks are left{}\n", fmt::join(places, ", "),
             made.layout.world_size(), present.layout.world_size(),
             numbers.empty() ? "" : fmt::format("; {}", fmt::join(numbers, ", ")));
  const std::vector<double> speeds = of_survivors(ranked.speeds, made.new_ranks);
  const double fastest = std::ranges::max(speeds);
  std::vector<std::string> relative;
  for (const double speed : speeds) relative.push_back(fmt::format("{:.2f}", speed / fastest));
  fmt::print("elastic: layers and samples follow the speed of the ranks, {}: {}\n", ranked.source,
             fmt::join(relative, " "));
  for (const std::string& note : made.notes) fmt::print("elastic: {}\n", note);
  if (!origin.resume)
    fmt::print("elastic: no checkpoint was written yet, so training begins anew, from {}\n",
               origin.pretrained ? "the model of --load-hf" : "the start values");
  std::fflush(stdout);
}

// What the run is after a loss.
struct Next {
  std::set<int> lost;
  Communicator world;
  TrainFlags flags;
  Layout layout;
  Origin origin;
};

// The way from losses to the next layout. It begins at the first layout each time. So it does not matter
// which rank had gone on already when another one was lost, and which one had not come so far.
class Recovery {
 public:
  Recovery(const TrainFlags& flags, const TokenInput& input, const Layout& layout, Communicator& world,
           RunSoFar& so_far)
      : flags_(flags), input_(input), layout_(layout), world_(world), so_far_(so_far) {}

  // The next layout and its world, or why there is none.
  Result<Next> go_on(const Present& present) {
    RankSpeeds ranked = speeds_of_run(flags_, present.layout, present.lost, so_far_, speeds_);
    speeds_ = ranked.speeds;
    std::set<int> known;
    add_failed(present.world, present.lost, known);
    // Until a rank has met the others, which it does at the latest after a step.
    const auto longest_way = 2 * std::chrono::duration_cast<milliseconds>(so_far_.longest_step);
    Status last;
    // A group that has failed stays until all have met again: they would take a rank that leaves it for lost.
    std::optional<Communicator> left;
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const Result<std::set<int>> lost = so_far_.census->agree(known, kPatience, longest_way);
      if (!lost.is_ok()) return lost.status();
      if (lost.value() == present.lost)
        return Status(Code::kInvalidUsage,
                      "no rank is lost, so there is nothing that would be better without it");
      last = make_group(lost.value(), left);
      if (!last.is_ok()) continue;
      Result<Next> next = next_layout(present, lost.value(), ranked, *left);
      if (next.is_ok()) return next;
      last = training::cause_of(*left, next.status());
      if (left->async_error() == HDT_SUCCESS) return next.status();
      fmt::print(stderr, "hdt-train: rank {}: another loss before the new layout was complete: {}\n",
                 left->rank(), last.message());
      add_failed(*left, lost.value(), known);
    }
    return Status(last.code(), fmt::format("the ranks that are left have not come to a new layout in {} "
                                           "attempts: {}",
                                           kMostAttempts, last.message()));
  }

 private:
  // The rank that the failure of a group is about, which is without `lost`.
  void add_failed(const Communicator& group, const std::set<int>& lost, std::set<int>& known) const {
    const int failed = group.failed_rank();
    if (failed < 0 || failed == group.rank()) return;
    known.insert(ranks_left(world_.size(), lost)[static_cast<size_t>(failed)]);
  }

  Status make_group(const std::set<int>& lost, std::optional<Communicator>& left) {
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    config.timeout_ms = kShrinkMs;
    return training::status_of([&] {
      left = world_.shrink({lost.begin(), lost.end()}, &config);
      left->set_timeout(milliseconds(timeout_ms(flags_)));
    });
  }

  // Takes the world if it succeeds.
  Result<Next> next_layout(const Present& present, const std::set<int>& lost, RankSpeeds& ranked,
                           Communicator& world) {
    HDT_RETURN_IF_ERROR(so_far_.census->settle());
    Result<training::ElasticLayout> made = layout_of_survivors(flags_, layout_, lost, ranked.speeds, world);
    if (!made.is_ok()) return made.status();
    TrainFlags flags = flags_of_survivors(flags_, layout_, made.value());
    Result<Origin> origin = open_origin(flags, input_, made.value().layout, world);
    if (!origin.is_ok()) return origin.status();
    if (world.rank() == 0) announce(present, lost, made.value(), ranked, origin.value());
    so_far_.goes_on_without_ranks();
    return Next{lost, std::move(world), std::move(flags), std::move(made.value().layout), origin.take()};
  }

  // Of the first layout.
  const TrainFlags& flags_;
  const TokenInput& input_;
  const Layout& layout_;
  Communicator& world_;
  RunSoFar& so_far_;
  std::vector<double> speeds_;  // as they were known at the loss before
};

}  // namespace

Result<std::string> run_elastically(const TrainFlags& flags, const TokenInput& input, const Layout& layout,
                                    Origin origin, Communicator& world, bool& speaks) {
  RunSoFar so_far;
  speaks = world.rank() == 0;
  if (!flags.elastic) return run_job(flags, input, layout, std::move(origin), so_far, world);
  HDT_RETURN_IF_ERROR(
      all_ready(world.rank() == 0 ? check_save_folder(flags, origin.resume) : Status::ok(), world));
  Result<std::string> ended = run_job(flags, input, layout, std::move(origin), so_far, world);
  Recovery recovery(flags, input, layout, world, so_far);
  std::optional<Next> now;
  while (!ended.is_ok()) {
    const std::set<int> nobody;
    const Present present =
        now ? Present{now->layout, now->lost, now->world} : Present{layout, nobody, world};
    // A group that has failed may be ahead of the world.
    (void)training::cause_of(present.world, ended.status());
    if (present.world.async_error() == HDT_SUCCESS || !so_far.census) return ended;
    fmt::print(stderr, "hdt-train: rank {}: {}; --elastic: the ranks that are left go on\n",
               present.world.rank(), ended.status().to_string());
    Result<Next> next = recovery.go_on(present);
    if (!next.is_ok())
      return Status(next.status().code(), fmt::format("after a loss (started as rank {}): {}", world.rank(),
                                                      next.status().message()));
    now.emplace(next.take());
    speaks = now->world.rank() == 0;
    ended = run_job(now->flags, input, now->layout, std::move(now->origin), so_far, now->world);
  }
  if (so_far.census && speaks) remove_census(*so_far.census);
  return ended;
}

}  // namespace hdt::tools
