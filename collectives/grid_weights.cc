// grid_weights.cc: see grid_weights.h. T is found by halving; what the columns and nodes can carry and
// combine within T follows from it, and the blocks are levelled below that.
#include "collectives/grid_weights.h"

#include <algorithm>
#include <numeric>

namespace hdt::collectives {
namespace {

// With fewer nodes each can talk to all the others.
constexpr int kFewestNodes = 12;

// The rates of a node in units of the fastest link's 65536th part, at least 1 and bounded.
struct Shares {
  int64_t link;
  int64_t combine;
  int64_t local;
};
// The share of a rate that is no limit. Times stay far below 2^63 / kMostShare, so products do not overflow.
constexpr int64_t kMostShare = int64_t{1} << 28;

int64_t share_of(uint64_t rate, uint64_t fastest) {
  const auto share = static_cast<unsigned __int128>(rate) * kWeightUnits / fastest;
  return static_cast<int64_t>(std::clamp<unsigned __int128>(share, 1, kMostShare));
}

std::vector<Shares> shares_of(std::span<const OwnerRates> rates) {
  const uint64_t fastest = std::max<uint64_t>(std::ranges::max(rates, {}, &OwnerRates::link).link, 1);
  const auto limit = [&](uint64_t rate) { return rate == 0 ? kMostShare : share_of(rate, fastest); };
  std::vector<Shares> all;
  for (const OwnerRates& each : rates)
    all.push_back({share_of(each.link, fastest), limit(each.combine), limit(each.local)});
  return all;
}

// What one column can carry and combine within a time. Amounts are in units of D / kWeightUnits. A time is in
// the units that the fastest link needs for such an amount.
class Column {
 public:
  Column(std::span<const Shares> shares, Grid grid) : shares_(shares), grid_(grid) {}

  // The longest stripe: the longer it is, the less room it leaves for blocks, which must add up to it.
  int64_t stripe(int64_t time) const {
    int64_t least = 0;
    int64_t most = kWeightUnits;
    while (least < most) {
      const int64_t length = least + (most - least + 1) / 2;
      const bool fits_in = fits(time, length);
      (fits_in ? least : most) = fits_in ? length : length - 1;
    }
    return least;
  }
  // The largest block of a node in a stripe of that length.
  uint32_t most(int64_t time, const Shares& shares, int64_t stripe) const {
    return static_cast<uint32_t>(std::clamp<int64_t>(room(time, shares, stripe) / scale(), 0, kWeightUnits));
  }

 private:
  bool fits(int64_t time, int64_t stripe) const {
    int64_t blocks = 0;
    for (const Shares& shares : shares_) {
      const int64_t own = room(time, shares, stripe);
      if (own < 0) return false;
      blocks += own;
    }
    return blocks >= stripe * scale();
  }
  // The largest block of a node, times scale(); below 0 if the stripe alone is too much for it. A block is
  // carried rows - 2 times and combined rows - 1 times, a stripe columns - 1 times.
  int64_t room(int64_t time, const Shares& shares, int64_t stripe) const {
    const int64_t passes = stripe * (grid_.columns - 1);
    const int64_t carried = done(time, shares.link) - kWeightUnits - passes;  // D is its own data
    const int64_t combined = done(time, shares.combine) - passes;
    const int64_t whole = kWeightUnits * scale();
    // With two rows, what a block costs a link, the other one's costs as well.
    const int64_t by_link = grid_.rows > 2 || carried < 0 ? carried * (grid_.rows - 1) : whole;
    return std::min({by_link, combined * std::max(grid_.rows - 2, 1), whole});
  }
  int64_t scale() const { return int64_t{grid_.rows - 1} * std::max(grid_.rows - 2, 1); }
  static int64_t done(int64_t time, int64_t share) {
    return static_cast<int64_t>(static_cast<__int128>(time) * share / kWeightUnits);
  }
  std::span<const Shares> shares_;
  const Grid grid_;
};

}  // namespace

Grid grid_of(int nodes) {
  if (nodes < kFewestNodes) return {};
  for (int rows = nodes / 2; rows > 1; --rows) {
    if (nodes % rows == 0 && rows <= nodes / rows) return {rows, nodes / rows};
  }
  return {};
}

GridWeights grid_weights(std::span<const OwnerRates> rates) {
  const Grid grid = grid_of(static_cast<int>(rates.size()));
  // 1. Nodes that get on alike share a column.
  GridWeights result;
  result.places.resize(rates.size());
  std::iota(result.places.begin(), result.places.end(), 0);
  std::ranges::stable_sort(result.places, {},
                           [&](int node) { return pace_of(rates[static_cast<size_t>(node)]); });
  std::vector<OwnerRates> sorted;
  for (const int node : result.places) sorted.push_back(rates[static_cast<size_t>(node)]);
  const std::vector<Shares> shares = shares_of(sorted);
  const auto rows = static_cast<size_t>(grid.rows);
  std::vector<Column> columns;
  for (size_t first = 0; first < shares.size(); first += rows) {
    columns.emplace_back(std::span(shares).subspan(first, rows), grid);
  }
  // 2. The least time in which the stripes are all of the data, and each node does what it must whatever it
  //    owns. With equal blocks the slowest node carries less than twice the data, and combines less than
  //    once, at a rate of at least 1.
  int64_t slowest = kWeightUnits;
  for (const Shares& each : shares) slowest = std::min({slowest, each.link, each.local});
  int64_t least = (int64_t{kWeightUnits} * kWeightUnits + slowest - 1) / slowest;
  int64_t most = int64_t{2} * kWeightUnits * kWeightUnits;
  const auto stripes = [&](int64_t time) {
    std::vector<uint32_t> all;
    for (const Column& column : columns) all.push_back(static_cast<uint32_t>(column.stripe(time)));
    return all;
  };
  while (least < most) {
    const int64_t time = least + (most - least) / 2;
    const std::vector<uint32_t> all = stripes(time);
    const bool enough = std::accumulate(all.begin(), all.end(), uint64_t{0}) >= kWeightUnits;
    (enough ? most : least) = enough ? time : time + 1;
  }
  // 3. The stripes within that time, and the blocks within the stripes.
  const std::vector<uint32_t> lengths = levelled(kWeightUnits, stripes(most));
  for (size_t column = 0; column < columns.size(); ++column) {
    std::vector<uint32_t> caps;
    for (const Shares& own : std::span(shares).subspan(column * rows, rows)) {
      caps.push_back(columns[column].most(most, own, lengths[column]));
    }
    for (const uint32_t weight : levelled(lengths[column], caps)) result.weights.push_back(weight);
  }
  return result;
}

double grid_seconds_of_a_byte(const GridWeights& weights, std::span<const OwnerRates> rates) {
  const Grid grid = grid_of(static_cast<int>(rates.size()));
  const auto part = [&](size_t place) {
    return weights.weights.empty() ? 1 / static_cast<double>(rates.size())
                                   : static_cast<double>(weights.weights[place]) / kWeightUnits;
  };
  double slowest = 0;
  for (size_t place = 0; place < rates.size(); ++place) {
    const size_t first = place - place % static_cast<size_t>(grid.rows);
    double stripe = 0;
    for (size_t other = first; other < first + static_cast<size_t>(grid.rows); ++other) stripe += part(other);
    const size_t node = weights.places.empty() ? place : static_cast<size_t>(weights.places[place]);
    const OwnerRates& own = rates[node];
    const double carried = 1 + part(place) * (grid.rows - 2) + stripe * (grid.columns - 1);
    slowest = std::max(slowest, carried / static_cast<double>(std::max<uint64_t>(own.link, 1)));
    const double combined = part(place) * (grid.rows - 1) + stripe * (grid.columns - 1);
    if (own.combine != 0) slowest = std::max(slowest, combined / static_cast<double>(own.combine));
    if (own.local != 0) slowest = std::max(slowest, 1 / static_cast<double>(own.local));
  }
  return slowest;
}

}  // namespace hdt::collectives
