// elastic_layout.cc: shares out layers over ranks, then micro-batches over replicas. Both give the next piece
// to whoever is done first with it, which makes the longest time the shortest one.
#include "training/engine/elastic_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

namespace hdt::training {
namespace {

// A replica while it is made.
struct Survivor {
  int old_replica = 0;
  std::vector<int> old_ranks;  // by new stage
  std::vector<int> layers;     // by new stage, of all its chunks
  Replica replica;
  double rate = 0;  // layers over time of its slowest stage: how fast a sample goes through

  int stages() const { return static_cast<int>(old_ranks.size()); }
  // Micro-batches are a multiple of this.
  int multiple() const { return replica.chunks > 1 ? stages() : 1; }
};

int layers_of(const Layout& old, int rank) {
  const Position position = old.position_of(rank);
  const Replica& replica = old.replica(position.replica);
  int layers = 0;
  for (int chunk = 0; chunk < replica.chunks; ++chunk)
    layers += replica.stage_layers[chunk * replica.stages() + position.stage];
  return layers;
}

// The least and the most layers of each stage.
struct Bounds {
  std::vector<int> least;
  std::vector<int> most;
};

// A stage between two others needs layers, one for each chunk. The first and the last one may do without;
// they have some where there are enough, unless they had none before.
Bounds bounds_of(const Layout& old, std::span<const RankAbility> ranks, const Survivor& survivor) {
  const int stages = survivor.stages();
  const int chunks = survivor.replica.chunks;
  Bounds bounds{std::vector<int>(survivor.old_ranks.size(), chunks), {}};
  for (const int rank : survivor.old_ranks)
    bounds.most.push_back(ranks[static_cast<size_t>(rank)].most_layers);
  if (chunks > 1 || stages == 1) return bounds;
  int spare = old.num_layers() - stages;
  for (const int end : {0, stages - 1}) {
    const bool had_none = layers_of(old, survivor.old_ranks[static_cast<size_t>(end)]) == 0;
    if (!had_none && spare >= 0) continue;
    bounds.least[static_cast<size_t>(end)] = 0;
    ++spare;
  }
  // A stage that had none has none again, unless the others could not hold all.
  for (const int end : {0, stages - 1}) {
    if (layers_of(old, survivor.old_ranks[static_cast<size_t>(end)]) > 0) continue;
    int64_t others = 0;
    for (int stage = 0; stage < stages; ++stage) {
      if (stage != end) others += std::min(bounds.most[static_cast<size_t>(stage)], old.num_layers());
    }
    if (others >= old.num_layers()) bounds.most[static_cast<size_t>(end)] = 0;
  }
  return bounds;
}

// The layers of each stage; nothing if they do not fit.
std::optional<std::vector<int>> split_layers(int layers, const std::vector<double>& speeds,
                                             const Bounds& bounds) {
  std::vector<int> split = bounds.least;
  int left = layers - std::accumulate(split.begin(), split.end(), 0);
  if (left < 0) return std::nullopt;
  for (size_t stage = 0; stage < split.size(); ++stage) {
    if (split[stage] > bounds.most[stage]) return std::nullopt;
  }
  for (; left > 0; --left) {
    std::optional<size_t> first_done;
    double least = 0;
    for (size_t stage = 0; stage < split.size(); ++stage) {
      if (split[stage] >= bounds.most[stage]) continue;
      const double time = (split[stage] + 1) / speeds[stage];
      if (first_done && time >= least) continue;
      first_done = stage;
      least = time;
    }
    if (!first_done) return std::nullopt;
    ++split[*first_done];
  }
  return split;
}

// Splits the layers of one replica over its ranks; falls back to one chunk where the layers do not suffice.
Status split_replica(const Layout& old, std::span<const RankAbility> ranks, Survivor& survivor) {
  std::vector<double> speeds;
  for (const int rank : survivor.old_ranks) speeds.push_back(ranks[static_cast<size_t>(rank)].speed);
  const Bounds bounds = bounds_of(old, ranks, survivor);
  const auto split = split_layers(old.num_layers(), speeds, bounds);
  if (!split) {
    if (survivor.replica.chunks > 1) {
      survivor.replica.chunks = 1;
      return split_replica(old, ranks, survivor);
    }
    int64_t room = 0;
    for (size_t stage = 0; stage < bounds.most.size(); ++stage) {
      room += std::min(bounds.most[stage], old.num_layers());
      if (bounds.most[stage] < bounds.least[stage])
        return {Code::kSystem,
                fmt::format("replica {}: the memory of rank {} holds none of the {} layers",
                            survivor.old_replica, survivor.old_ranks[stage], old.num_layers())};
    }
    return {
        Code::kSystem,
        fmt::format(
            "replica {}: {} {} left of it, whose memory holds {} of the {} layers: {} too few. Start "
            "the run again with fewer replicas, or with --use-distributed-optimizer",
            survivor.old_replica, survivor.stages() == 1 ? "rank" : "ranks",
            fmt::format("{} {}", fmt::join(survivor.old_ranks, ", "), survivor.stages() == 1 ? "is" : "are"),
            room, old.num_layers(), old.num_layers() - room)};
  }
  survivor.layers = *split;
  double longest = 0;
  for (size_t stage = 0; stage < split->size(); ++stage)
    longest = std::max(longest, (*split)[stage] / speeds[stage]);
  survivor.rate = old.num_layers() / longest;
  // Each stage's layers over its chunks, as evenly as they go.
  const int chunks = survivor.replica.chunks;
  survivor.replica.stage_layers.clear();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const int layers : *split)
      survivor.replica.stage_layers.push_back(layers / chunks + (chunk < layers % chunks ? 1 : 0));
  }
  return Status::ok();
}

// Where the sizes of micro-batches differ, more cells than this are not searched: it would take long.
constexpr int64_t kMostCells = 20'000'000;

// The same for pieces of one sample each, of which any number can be made.
std::vector<int64_t> counts_of_equal(int64_t batch, const std::vector<Survivor>& survivors) {
  std::vector<int64_t> counts(survivors.size(), 1);
  for (int64_t left = batch - static_cast<int64_t>(counts.size()); left > 0; --left) {
    size_t first_done = 0;
    for (size_t r = 1; r < counts.size(); ++r) {
      const auto time = [&](size_t of) { return static_cast<double>(counts[of] + 1) / survivors[of].rate; };
      if (time(r) < time(first_done)) first_done = r;
    }
    ++counts[first_done];
  }
  return counts;
}

// Whether numbers of micro-batches make the batch exactly, each replica done within `time`, and which. A
// piece of a replica is its least number of micro-batches; `sizes` has the samples of a piece, and a piece
// more is one more of them.
std::optional<std::vector<int64_t>> counts_within(double time, int64_t batch, std::span<const int64_t> sizes,
                                                  const std::vector<Survivor>& survivors) {
  // Every replica has a piece.
  const int64_t rest = batch - std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (rest < 0) return std::nullopt;
  // used[r][n]: the pieces of replica r of which replicas 0 .. r make n samples, as few as it can; -1: they
  // cannot.
  std::vector<std::vector<int64_t>> used;
  std::vector<bool> reached(static_cast<size_t>(rest) + 1, false);
  reached[0] = true;
  for (size_t r = 0; r < sizes.size(); ++r) {
    const double pieces = std::floor(time * survivors[r].rate / static_cast<double>(sizes[r]) * (1 + 1e-12));
    if (pieces < 1) return std::nullopt;
    const int64_t most = static_cast<int64_t>(std::min(pieces, static_cast<double>(batch))) - 1;
    std::vector<int64_t>& mine = used.emplace_back(reached.size(), -1);
    for (size_t n = 0; n < reached.size(); ++n) {
      if (reached[n]) {
        mine[n] = 0;
      } else if (const auto size = static_cast<size_t>(sizes[r]);
                 n >= size && mine[n - size] >= 0 && mine[n - size] < most) {
        mine[n] = mine[n - size] + 1;
      }
    }
    for (size_t n = 0; n < reached.size(); ++n) reached[n] = mine[n] >= 0;
  }
  if (!reached.back()) return std::nullopt;
  std::vector<int64_t> counts(sizes.size());
  int64_t left = rest;
  for (size_t r = sizes.size(); r-- > 0;) {
    const int64_t more = used[r][static_cast<size_t>(left)];
    counts[r] = 1 + more;
    left -= more * sizes[r];
  }
  return counts;
}

// The counts with which the slowest replica is done soonest; nothing if none make the batch.
std::optional<std::vector<int64_t>> best_counts(int64_t batch, std::span<const int64_t> sizes,
                                                const std::vector<Survivor>& survivors) {
  const auto replicas = static_cast<int64_t>(survivors.size());
  if (std::ranges::all_of(sizes, [](int64_t size) { return size == 1; })) {
    if (batch < replicas) return std::nullopt;
    return counts_of_equal(batch, survivors);
  }
  if (batch > kMostCells / replicas) return std::nullopt;
  double rates = 0;
  double slowest = survivors.front().rate;
  for (const Survivor& survivor : survivors) {
    rates += survivor.rate;
    slowest = std::min(slowest, survivor.rate);
  }
  // All of it on the slowest one is the worst case; in proportion to the rates is the best one.
  double enough = static_cast<double>(batch) / slowest * 2;
  double too_short = static_cast<double>(batch) / rates;
  auto best = counts_within(enough, batch, sizes, survivors);
  if (!best) return std::nullopt;
  if (auto found = counts_within(too_short, batch, sizes, survivors)) return found;
  constexpr double kNear = 1.001;
  while (enough > too_short * kNear) {
    const double between = std::sqrt(too_short * enough);
    if (auto found = counts_within(between, batch, sizes, survivors)) {
      best = std::move(found);
      enough = between;
    } else {
      too_short = between;
    }
  }
  return best;
}

// Sets the numbers of micro-batches, with the sizes as they are. False if they cannot make the batch.
bool share_out_batch(int64_t batch, std::vector<Survivor>& survivors) {
  std::vector<int64_t> sizes;
  int64_t unit = batch;
  for (const Survivor& survivor : survivors) {
    sizes.push_back(int64_t{survivor.replica.micro_batch_size} * survivor.multiple());
    unit = std::gcd(unit, sizes.back());
  }
  // In units that divide all of them the batch is small, and one of equal micro-batches is their number.
  for (int64_t& size : sizes) size /= unit;
  const auto best = best_counts(batch / unit, sizes, survivors);
  if (!best) return false;
  for (size_t r = 0; r < survivors.size(); ++r)
    survivors[r].replica.num_micro_batches = static_cast<int>((*best)[r] * survivors[r].multiple());
  return true;
}

// The same with the largest other size of one replica's micro-batches, the fastest replica first; and if that
// does not do, with one size for all.
bool share_out_with_other_sizes(int64_t batch, std::vector<Survivor>& survivors,
                                std::vector<std::string>& notes) {
  const auto note = [&](const Survivor& survivor, int before) {
    if (survivor.replica.micro_batch_size == before) return;
    notes.push_back(
        fmt::format("replica {} of before has micro-batches of {} in place of {}, as the batch of "
                    "{} samples cannot be made otherwise",
                    survivor.old_replica, survivor.replica.micro_batch_size, before, batch));
  };
  std::vector<size_t> fastest_first(survivors.size());
  std::iota(fastest_first.begin(), fastest_first.end(), size_t{0});
  std::ranges::stable_sort(
      fastest_first, [&](size_t one, size_t other) { return survivors[one].rate > survivors[other].rate; });
  for (const size_t r : fastest_first) {
    const int before = survivors[r].replica.micro_batch_size;
    for (int size = before - 1; size > 0; --size) {
      survivors[r].replica.micro_batch_size = size;
      if (!share_out_batch(batch, survivors)) continue;
      note(survivors[r], before);
      return true;
    }
    survivors[r].replica.micro_batch_size = before;
  }
  std::vector<int> before;
  for (const Survivor& survivor : survivors) before.push_back(survivor.replica.micro_batch_size);
  for (int size = std::ranges::min(before); size > 0; --size) {
    for (Survivor& survivor : survivors) survivor.replica.micro_batch_size = size;
    if (!share_out_batch(batch, survivors)) continue;
    for (size_t r = 0; r < survivors.size(); ++r) note(survivors[r], before[r]);
    return true;
  }
  return false;
}

Status check_abilities(const Layout& old, std::span<const RankAbility> ranks) {
  if (static_cast<int>(ranks.size()) != old.world_size())
    return {Code::kInvalidArgument, fmt::format("{} ranks are described, expected the {} of the layout",
                                                ranks.size(), old.world_size())};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!(ranks[rank].speed > 0) || !std::isfinite(ranks[rank].speed) || ranks[rank].most_layers < 0)
      return {Code::kInvalidArgument,
              fmt::format("rank {}: speed {} and room for {} layers given, expected a speed above 0 and no "
                          "fewer than 0 layers",
                          rank, ranks[rank].speed, ranks[rank].most_layers)};
  }
  if (std::ranges::all_of(ranks, &RankAbility::lost))
    return {Code::kInvalidArgument, "all ranks are lost, expected one that is left"};
  return Status::ok();
}

// The replicas of which ranks are left. That of the lowest one comes first, as rank 0 is in replica 0.
std::vector<Survivor> survivors_of(const Layout& old, std::span<const RankAbility> ranks) {
  std::vector<Survivor> survivors;
  int first_rank = old.world_size();
  size_t first = 0;
  for (int index = 0; index < old.num_replicas(); ++index) {
    Survivor survivor;
    survivor.old_replica = index;
    survivor.replica = old.replica(index);
    for (int stage = 0; stage < old.replica(index).stages(); ++stage) {
      const int rank = old.rank_of({index, stage, 0});
      if (!ranks[static_cast<size_t>(rank)].lost) survivor.old_ranks.push_back(rank);
    }
    if (survivor.old_ranks.empty()) continue;
    if (survivor.stages() == 1) survivor.replica.chunks = 1;  // one chunk after the other is one chunk
    if (const int lowest = std::ranges::min(survivor.old_ranks); lowest < first_rank) {
      first_rank = lowest;
      first = survivors.size();
    }
    survivors.push_back(std::move(survivor));
  }
  std::rotate(survivors.begin(), survivors.begin() + static_cast<std::ptrdiff_t>(first),
              survivors.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  return survivors;
}

}  // namespace

Result<ElasticLayout> elastic_layout(const Layout& old, std::span<const RankAbility> ranks) {
  HDT_RETURN_IF_ERROR(check_abilities(old, ranks));
  std::vector<Survivor> survivors = survivors_of(old, ranks);
  for (Survivor& survivor : survivors) HDT_RETURN_IF_ERROR(split_replica(old, ranks, survivor));
  std::vector<std::string> notes;
  const int64_t batch = old.global_batch_size();
  bool made = share_out_batch(batch, survivors);
  const bool has_chunks =
      std::ranges::any_of(survivors, [](const Survivor& one) { return one.replica.chunks > 1; });
  if (!made && has_chunks) {
    // Chunks want multiples of the stages.
    for (Survivor& survivor : survivors) {
      survivor.replica.chunks = 1;
      HDT_RETURN_IF_ERROR(split_replica(old, ranks, survivor));
    }
    made = share_out_batch(batch, survivors);
  }
  if (!made && !share_out_with_other_sizes(batch, survivors, notes))
    return Status(Code::kInvalidArgument,
                  fmt::format("the {} replicas that are left cannot make a batch of {} samples",
                              survivors.size(), batch));
  for (const Survivor& survivor : survivors) {
    const int before = old.replica(survivor.old_replica).chunks;
    if (survivor.replica.chunks == before) continue;
    notes.push_back(fmt::format("replica {} of before has one chunk on each stage in place of {}",
                                survivor.old_replica, before));
  }
  // Ranks that are left keep their order.
  std::vector<int> new_ranks(ranks.size(), -1);
  int next = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].lost) new_ranks[rank] = next++;
  }
  std::vector<Replica> replicas;
  std::vector<std::vector<int>> numbers;
  for (const Survivor& survivor : survivors) {
    replicas.push_back(survivor.replica);
    std::vector<int>& of_replica = numbers.emplace_back();
    for (const int rank : survivor.old_ranks) of_replica.push_back(new_ranks[static_cast<size_t>(rank)]);
  }
  Layout layout(old.num_layers(), std::move(replicas), std::move(numbers));
  return ElasticLayout{old.has_tied_unit() ? layout.with_tied_unit() : std::move(layout),
                       std::move(new_ranks), std::move(notes)};
}

}  // namespace hdt::training
