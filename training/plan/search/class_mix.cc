// class_mix.cc: the simplex method for the mix of several kinds, and a knapsack for each kind.
#include "training/plan/search/class_mix.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hdt::plan {
namespace {

using Counts = std::vector<int>;

// Stages of a kind are neighbours, so the first and the last one tell.
bool several_kinds(const ReplicaKind& made) { return made.kinds.front() != made.kinds.back(); }

// The best use of 0, 1, ... devices of one kind by classes of that kind alone: the unbounded knapsack,
// whose table serves every number of devices that is left over. `classes` must outlive it.
class KindKnapsack {
 public:
  KindKnapsack(const std::vector<ReplicaKind>& classes, const std::vector<int64_t>& value, int kind,
               int devices)
      : classes_(classes), kind_(kind), best_(devices + 1, 0), last_(devices + 1, -1) {
    std::vector<size_t> usable;
    for (size_t c = 0; c < classes.size(); ++c) {
      if (value[c] > 0 && classes[c].devices[kind] > 0 && !several_kinds(classes[c])) usable.push_back(c);
    }
    // best_[room] is the maximum of samples with `room` devices. Either the last device stays unused, or
    // some class is the last one added.
    for (int room = 1; room <= devices; ++room) {
      best_[room] = best_[room - 1];
      for (const size_t c : usable) {
        const int use = classes[c].devices[kind];
        if (use > room) continue;
        if (best_[room - use] + value[c] <= best_[room]) continue;
        best_[room] = best_[room - use] + value[c];
        last_[room] = static_cast<int>(c);
      }
    }
  }

  // Adds the replicas that are best for `room` devices to `replicas`, and takes their devices from
  // `room`.
  void fill(int& room, Counts& replicas) const {
    for (int at = room; at > 0;) {
      if (last_[at] < 0) {
        --at;
        continue;
      }
      const int use = classes_[last_[at]].devices[kind_];
      ++replicas[last_[at]];
      room -= use;
      at -= use;
    }
  }

 private:
  const std::vector<ReplicaKind>& classes_;
  const int kind_;
  std::vector<int64_t> best_;
  std::vector<int> last_;  // class that was added at this room; -1: the best is that of less room
};

// Whether one replica of the class finds its devices.
bool fits(const ReplicaKind& made, const std::vector<int>& room) {
  for (size_t kind = 0; kind < room.size(); ++kind) {
    if (made.devices[kind] > room[kind]) return false;
  }
  return true;
}

void take(const ReplicaKind& made, int replicas, std::vector<int>& room) {
  for (size_t kind = 0; kind < room.size(); ++kind) room[kind] -= replicas * made.devices[kind];
}

}  // namespace

// All uses and capacities are at least 0, so x = 0 (every row's slack in the basis) is a feasible start,
// and no first phase is needed.
std::vector<double> solve_packing(const std::vector<double>& value, const std::vector<std::vector<int>>& use,
                                  const std::vector<int>& capacity) {
  // Revised simplex from the slack basis (Dantzig's rule; few rows, so the inverse is kept whole).
  constexpr double kRounding = 1e-9;
  constexpr int kMostPivots = 1000;  // against cycling; every solution on the way is feasible
  const size_t rows = capacity.size();
  std::vector<std::vector<double>> inverse(rows, std::vector<double>(rows, 0));
  std::vector<double> level(capacity.begin(), capacity.end());
  std::vector<int> basis(rows, -1);  // column of each row; -1: its slack
  for (size_t row = 0; row < rows; ++row) inverse[row][row] = 1;
  for (int pivot = 0; pivot < kMostPivots; ++pivot) {
    // 1. Prices: what another unit of each row's capacity would be worth with the present basis.
    std::vector<double> price(rows, 0);
    for (size_t row = 0; row < rows; ++row) {
      if (basis[row] < 0) continue;
      for (size_t k = 0; k < rows; ++k) price[k] += value[basis[row]] * inverse[row][k];
    }
    // 2. The column, or the slack of a row, that gains the most enters the basis.
    int entering = -1;
    double most = 0;
    for (size_t c = 0; c < value.size(); ++c) {
      double gain = value[c];
      for (size_t k = 0; k < rows; ++k) gain -= price[k] * use[c][k];
      if (gain > most + kRounding * std::abs(value[c])) {
        most = gain;
        entering = static_cast<int>(c);
      }
    }
    int slack = -1;
    for (size_t k = 0; k < rows; ++k) {
      if (-price[k] > most + kRounding) {
        most = -price[k];
        slack = static_cast<int>(k);
      }
    }
    // Nothing gains: the basis is the optimum.
    if (entering < 0 && slack < 0) break;
    std::vector<double> direction(rows, 0);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t k = 0; k < rows; ++k)
        direction[row] += inverse[row][k] * (slack >= 0 ? (static_cast<int>(k) == slack) : use[entering][k]);
    }
    // 3. The row that is the first to be used up leaves the basis.
    int leaving = -1;
    double step = std::numeric_limits<double>::infinity();
    for (size_t row = 0; row < rows; ++row) {
      if (direction[row] <= kRounding || level[row] / direction[row] >= step) continue;
      step = level[row] / direction[row];
      leaving = static_cast<int>(row);
    }
    // The gain is unlimited; this cannot happen, as each column uses something.
    if (leaving < 0) break;
    // 4. Bring levels and inverse to the new basis.
    for (size_t row = 0; row < rows; ++row) {
      if (static_cast<int>(row) == leaving) continue;
      level[row] -= step * direction[row];
      for (size_t k = 0; k < rows; ++k)
        inverse[row][k] -= direction[row] / direction[leaving] * inverse[leaving][k];
    }
    for (size_t k = 0; k < rows; ++k) inverse[leaving][k] /= direction[leaving];
    level[leaving] = step;
    basis[leaving] = slack >= 0 ? -1 : entering;
  }
  std::vector<double> x(value.size(), 0);
  for (size_t row = 0; row < rows; ++row) {
    if (basis[row] >= 0) x[basis[row]] = std::max(0.0, level[row]);
  }
  return x;
}

// 1. The relaxation says how many replicas of each class the devices allow, in fractions.
// 2. Of those, only classes of several kinds are taken over, rounded down; one by one they are also
//    rounded up.
// 3. Each of these beginnings is completed by the knapsacks, and the best one wins.
ClassMix mix_classes(const std::vector<ReplicaKind>& classes, const std::vector<int>& devices,
                     double step_seconds) {
  std::vector<int64_t> value;
  std::vector<double> column_value;
  std::vector<std::vector<int>> use;
  std::vector<int> column_class;
  for (size_t c = 0; c < classes.size(); ++c) {
    // Classes that cannot complete one micro-batch in this time are no columns.
    value.push_back(classes[c].most_samples(step_seconds));
    if (value.back() == 0) continue;
    column_value.push_back(static_cast<double>(value.back()));
    use.push_back(classes[c].devices);
    column_class.push_back(static_cast<int>(c));
  }
  const std::vector<double> x = solve_packing(column_value, use, devices);
  std::vector<KindKnapsack> knapsacks;
  for (size_t kind = 0; kind < devices.size(); ++kind)
    knapsacks.emplace_back(classes, value, static_cast<int>(kind), devices[kind]);

  ClassMix best{Counts(classes.size(), 0), 0};
  // Fills the devices that the given replicas leave. A beginning that needs more than there are is
  // skipped.
  const auto complete = [&](Counts replicas) {
    std::vector<int> room = devices;
    for (size_t c = 0; c < classes.size(); ++c) take(classes[c], replicas[c], room);
    if (std::ranges::any_of(room, [](int left) { return left < 0; })) return;
    for (size_t kind = 0; kind < room.size(); ++kind) knapsacks[kind].fill(room[kind], replicas);
    while (true) {  // what remains of several kinds
      int chosen = -1;
      for (size_t c = 0; c < classes.size(); ++c) {
        if (value[c] > 0 && several_kinds(classes[c]) && fits(classes[c], room) &&
            (chosen < 0 || value[c] > value[chosen]))
          chosen = static_cast<int>(c);
      }
      if (chosen < 0) break;
      ++replicas[chosen];
      take(classes[chosen], 1, room);
    }
    int64_t samples = 0;
    for (size_t c = 0; c < classes.size(); ++c) samples += replicas[c] * value[c];
    if (samples > best.samples) best = {std::move(replicas), samples};
  };
  Counts rounded_down(classes.size(), 0);
  std::vector<int> fractional;
  for (size_t i = 0; i < x.size(); ++i) {
    const int c = column_class[i];
    if (x[i] <= 0 || !several_kinds(classes[c])) continue;
    rounded_down[c] = static_cast<int>(std::floor(x[i] + 1e-9));
    fractional.push_back(c);
  }
  // The first beginning has no replicas of several kinds.
  complete(Counts(classes.size(), 0));
  complete(rounded_down);
  for (const int c : fractional) {
    Counts up = rounded_down;
    ++up[c];
    complete(std::move(up));
  }
  return best;
}

}  // namespace hdt::plan
