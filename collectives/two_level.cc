// two_level.cc: direct exchange in two levels, for an allreduce of many nodes. Each node talks to the others
// of its row and of its column in a grid of nodes, some 2 sqrt(nodes) peers, where pairwise has all others.
// It moves as few bytes.
//
// A column owns a stripe of the chunk, and each node of it a block of the stripe. For the node in row r and
// column c:
//
//   1. It sends its contribution to the stripe of each other column to the node of that column in its own
//      row, and receives the row's contributions to its own stripe.
//   2. It combines them for the blocks of the others in its column, and sends each its block. Its own block
//      it combines last, from the row's contributions and from what the column sends, in one pass.
//   3. It sends its block to the column, and the whole stripe, when that is complete, to its row.
//
// Contributions are combined in the order of the columns, and then of the rows. kInput is not written, so
// users' buffers may be used in place, as with pairwise. For this, what arrives for the own block lies apart
// from the rest of the stripe, and a contribution travels in up to three messages: what lies before the
// block, behind it, and the block.
//
// Blocks may be unequal. A node whose block is the fraction w of the chunk, in a stripe of the fraction s,
// sends and receives 1 + w (rows - 2) + s (columns - 1) times the chunk (grid_weights.h).
#include "collectives/algorithms.h"
#include "collectives/grid_weights.h"

namespace hdt::collectives {
namespace {

// The three ranges of a stripe as one of its owners sees it.
struct Stripe {
  Range before, own, behind;
};

// Builds the list of one node. Lives during make_two_level() only.
class TwoLevelBuilder {
 public:
  explicit TwoLevelBuilder(const Problem& problem)
      : problem_(problem), grid_(grid_of(problem.nodes)), schedule_(std::make_unique<ListedSchedule>()) {
    const int place =
        problem.places.empty()
            ? problem.me
            : static_cast<int>(std::ranges::find(problem.places, problem.me) - problem.places.begin());
    column_ = place / grid_.rows;
    row_ = place % grid_.rows;
    own_ = stripe(column_, row_);
  }

  std::unique_ptr<Schedule> build() {
    exchange_in_row();
    exchange_in_column();
    return_in_column();
    return_in_row();
    return std::move(schedule_);
  }

 private:
  int node_at(int column, int row) const {
    const int place = column * grid_.rows + row;
    return problem_.places.empty() ? place : problem_.places[static_cast<size_t>(place)];
  }
  // The stripe of that column, as its owner in that row sees it.
  Stripe stripe(int column, int row) const {
    const int first = column * grid_.rows;
    return {blocks_of(problem_, first, first + row), blocks_of(problem_, first + row, first + row + 1),
            blocks_of(problem_, first + row + 1, first + grid_.rows)};
  }
  static uint64_t length(const Stripe& stripe) {
    return stripe.before.length + stripe.own.length + stripe.behind.length;
  }

  // The scratch of a node: the row's contributions to what lies before its block, to what lies behind it, to
  // its block, and the column's to its block. Each is that of `from`, a column or a row, at a node in `at`.
  static uint64_t place_of(int from, int at) { return static_cast<uint64_t>(from < at ? from : from - 1); }
  uint64_t others() const { return static_cast<uint64_t>(grid_.columns - 1); }
  uint64_t behind_in_scratch(const Stripe& stripe) const { return others() * stripe.before.length; }
  uint64_t own_in_scratch(const Stripe& stripe) const {
    return behind_in_scratch(stripe) + others() * stripe.behind.length;
  }
  uint64_t column_in_scratch(const Stripe& stripe) const {
    return own_in_scratch(stripe) + others() * stripe.own.length;
  }

  void send(int peer, Area from, Range range, Area to, uint64_t target) {
    schedule_->add({StepKind::kSend, peer, from, to, range.offset, range.length, target});
  }
  void receive(int peer, Area to, Range range, uint64_t target) {
    schedule_->add({StepKind::kRecv, peer, Area::kInput, to, range.offset, range.length, target});
  }
  void combine(Range range, int gathered, uint64_t target) {
    Step all{StepKind::kReduce, -1, Area::kInput, Area::kOutput, range.offset, range.length, target};
    all.gathered = gathered;
    all.place = column_;
    schedule_->add(all);
  }

  void exchange_in_row() {
    for (int ahead = 1; ahead < grid_.columns; ++ahead) {
      const int column = (column_ + ahead) % grid_.columns;
      const Stripe theirs = stripe(column, row_);
      const uint64_t place = place_of(column_, column);
      const int peer = node_at(column, row_);
      send(peer, Area::kInput, theirs.before, Area::kScratch, place * theirs.before.length);
      send(peer, Area::kInput, theirs.behind, Area::kScratch,
           behind_in_scratch(theirs) + place * theirs.behind.length);
      send(peer, Area::kInput, theirs.own, Area::kScratch,
           own_in_scratch(theirs) + place * theirs.own.length);
    }
    for (int ahead = 1; ahead < grid_.columns; ++ahead) {
      const int column = (column_ + grid_.columns - ahead) % grid_.columns;
      const uint64_t place = place_of(column, column_);
      const int peer = node_at(column, row_);
      receive(peer, Area::kScratch, own_.before, place * own_.before.length);
      receive(peer, Area::kScratch, own_.behind, behind_in_scratch(own_) + place * own_.behind.length);
      receive(peer, Area::kScratch, own_.own, own_in_scratch(own_) + place * own_.own.length);
    }
    combine(own_.before, grid_.columns - 1, 0);
    combine(own_.behind, grid_.columns - 1, behind_in_scratch(own_));
  }

  void exchange_in_column() {
    for (int ahead = 1; ahead < grid_.rows; ++ahead) {
      const int row = (row_ + ahead) % grid_.rows;
      const Stripe theirs = stripe(column_, row);
      send(node_at(column_, row), Area::kOutput, theirs.own, Area::kScratch,
           column_in_scratch(theirs) + place_of(row_, row) * theirs.own.length);
    }
    for (int ahead = 1; ahead < grid_.rows; ++ahead) {
      const int row = (row_ + grid_.rows - ahead) % grid_.rows;
      receive(node_at(column_, row), Area::kScratch, own_.own,
              column_in_scratch(own_) + place_of(row, row_) * own_.own.length);
    }
    combine(own_.own, grid_.columns - 1 + grid_.rows - 1, own_in_scratch(own_));
  }

  void return_in_column() {
    for (int ahead = 1; ahead < grid_.rows; ++ahead) {
      send(node_at(column_, (row_ + ahead) % grid_.rows), Area::kOutput, own_.own, Area::kOutput,
           own_.own.offset);
    }
    for (int ahead = 1; ahead < grid_.rows; ++ahead) {
      const int row = (row_ + grid_.rows - ahead) % grid_.rows;
      receive(node_at(column_, row), Area::kOutput, stripe(column_, row).own, 0);
    }
  }

  void return_in_row() {
    const Range whole{own_.before.offset, length(own_)};
    for (int ahead = 1; ahead < grid_.columns; ++ahead) {
      send(node_at((column_ + ahead) % grid_.columns, row_), Area::kOutput, whole, Area::kOutput,
           whole.offset);
    }
    for (int ahead = 1; ahead < grid_.columns; ++ahead) {
      const int column = (column_ + grid_.columns - ahead) % grid_.columns;
      const Stripe theirs = stripe(column, row_);
      receive(node_at(column, row_), Area::kOutput, {theirs.before.offset, length(theirs)}, 0);
    }
  }

  const Problem& problem_;
  const Grid grid_;
  int column_ = 0;
  int row_ = 0;
  Stripe own_{};
  std::unique_ptr<ListedSchedule> schedule_;
};

}  // namespace

bool has_two_level(const Problem& problem) {
  return problem.what == Collective::kAllReduce && grid_of(problem.nodes).rows > 1;
}

// The scratch of the node that needs most.
uint64_t two_level_scratch(const Problem& problem) {
  const Grid grid = grid_of(problem.nodes);
  uint64_t most = 0;
  for (int place = 0; place < problem.nodes; ++place) {
    const int first = place / grid.rows * grid.rows;
    const uint64_t stripe = blocks_of(problem, first, first + grid.rows).length;
    const uint64_t own = blocks_of(problem, place, place + 1).length;
    most = std::max(
        most, static_cast<uint64_t>(grid.columns - 1) * stripe + static_cast<uint64_t>(grid.rows - 1) * own);
  }
  return most;
}

std::unique_ptr<Schedule> make_two_level(const Problem& problem) {
  return has_two_level(problem) ? TwoLevelBuilder(problem).build() : make_halving_doubling(problem);
}

}  // namespace hdt::collectives
