// grid_weights.cc: see grid_weights.h. T is found by halving; what the columns and nodes can carry within T
// follows from it, and the blocks are levelled below that.
#include "collectives/grid_weights.h"

#include <algorithm>
#include <numeric>

#include "collectives/owner_weights.h"

namespace hdt::collectives {
namespace {

// With fewer nodes each can talk to all the others.
constexpr int kFewestNodes = 12;

// The rates in units of the fastest one's 65536th part, at least 1.
std::vector<int64_t> relative(std::span<const uint64_t> rates) {
  const uint64_t fastest = std::max<uint64_t>(*std::ranges::max_element(rates), 1);
  std::vector<int64_t> all;
  for (const uint64_t rate : rates) {
    // Rates are below 2^50, so the product fits once the rate is cut to 47 bits.
    const int shift = fastest >> 47 != 0 ? 4 : 0;
    const uint64_t share = (rate >> shift) * kWeightUnits / std::max<uint64_t>(fastest >> shift, 1);
    all.push_back(static_cast<int64_t>(std::clamp<uint64_t>(share, 1, kWeightUnits)));
  }
  return all;
}

// What one column can carry within a time. Amounts are in units of D / kWeightUnits. A time is in the units
// that the fastest node needs for such an amount.
class Column {
 public:
  Column(std::span<const int64_t> rates, Grid grid) : rates_(rates), grid_(grid) {}

  // The longest stripe.
  int64_t stripe(int64_t time) const {
    int64_t least = INT64_MAX;
    int64_t sum = 0;
    for (const int64_t rate : rates_) {
      const int64_t rest = beyond_own(time, rate);
      least = std::min(least, rest);
      sum += rest;
    }
    if (least <= 0) return 0;
    const int64_t passes = grid_.columns - 1;
    const int64_t by_sum = sum / (grid_.rows * passes + grid_.rows - 2);
    return std::min<int64_t>({least / passes, by_sum, kWeightUnits});
  }
  // The largest block of a node in a stripe of that length.
  uint32_t most(int64_t time, int64_t rate, int64_t stripe) const {
    if (grid_.rows == 2) return kWeightUnits;  // what a block costs, the other one's costs as well
    const int64_t rest = beyond_own(time, rate) - stripe * (grid_.columns - 1);
    return static_cast<uint32_t>(std::clamp<int64_t>(rest / (grid_.rows - 2), 0, kWeightUnits));
  }

 private:
  // What the node has time to carry, less D for its own contribution and result; below 0 if it cannot carry
  // that.
  static int64_t beyond_own(int64_t time, int64_t rate) {
    return static_cast<int64_t>(static_cast<__int128>(time) * rate / kWeightUnits) - kWeightUnits;
  }
  std::span<const int64_t> rates_;
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

GridWeights grid_weights(std::span<const uint64_t> rates) {
  const Grid grid = grid_of(static_cast<int>(rates.size()));
  // 1. Nodes of like rates share a column.
  GridWeights result;
  result.places.resize(rates.size());
  std::iota(result.places.begin(), result.places.end(), 0);
  std::ranges::stable_sort(result.places, {}, [&](int node) { return rates[static_cast<size_t>(node)]; });
  std::vector<uint64_t> sorted;
  for (const int node : result.places) sorted.push_back(rates[static_cast<size_t>(node)]);
  const std::vector<int64_t> shares = relative(sorted);
  const auto rows = static_cast<size_t>(grid.rows);
  std::vector<Column> columns;
  for (size_t first = 0; first < shares.size(); first += rows) {
    columns.emplace_back(std::span(shares).subspan(first, rows), grid);
  }
  // 2. The least time in which the stripes are all of the data. With equal blocks the slowest node carries
  //    less than twice the data, at a rate of at least 1.
  int64_t least = kWeightUnits;
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
    for (const int64_t rate : std::span(shares).subspan(column * rows, rows)) {
      caps.push_back(columns[column].most(most, rate, lengths[column]));
    }
    for (const uint32_t weight : levelled(lengths[column], caps)) result.weights.push_back(weight);
  }
  return result;
}

double grid_seconds_of_a_byte(const GridWeights& weights, std::span<const uint64_t> rates) {
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
    const double carried = 1 + part(place) * (grid.rows - 2) + stripe * (grid.columns - 1);
    slowest = std::max(slowest, carried / static_cast<double>(std::max<uint64_t>(rates[node], 1)));
  }
  return slowest;
}

}  // namespace hdt::collectives
