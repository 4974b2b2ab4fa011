// measure.h: times and verifies one row on a group, with one engine or with several in turn.
//
// Out of place, the results of the last timed iteration are verified. In place, the timed iterations run
// on zeros, because a sum that feeds itself overflows and a product becomes subnormal and slow. One more
// run on data is then verified.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/commbench/buffer.h"
#include "bench/commbench/communicator.h"
#include "bench/commbench/pattern.h"
#include "bench/commbench/plan.h"
#include "bench/commbench/resource_use.h"
#include "bench/commbench/statistics.h"

namespace hdt::bench {

// How often each row is run.
struct Settings {
  // Timed ones of a round.
  int iterations = 20;
  // Untimed ones before each round.
  int warm_up = 5;
  bool check = true;
};

// The figures of one engine for one placement of a row.
struct Measurement {
  // Over the iterations of all rounds.
  Timing timing;
  // Wrong elements and broken guards, summed over all ranks. No value: not checked.
  std::optional<int64_t> wrong;
  // The median time of each round, in microseconds.
  std::vector<double> round_p50_us;
  // Time divided by that of the reference engine: the median over the rounds.
  std::optional<double> ratio;
  // Processor seconds of all ranks and their daemons, per 10^9 bytes of bus traffic.
  double cpu_s_per_gb = 0;
  // Bytes an iteration, by interface of this rank's machine. Each rank has its own.
  std::map<std::string, uint64_t> sent_bytes;
};

// One row of the table: one engine at one size.
struct RowResult {
  Row row;
  Shape shape;
  Measurement out_of_place;
  // No value: the collective has no in-place form.
  std::optional<Measurement> in_place;
  // Index among the engines of the run.
  size_t engine = 0;
  // If not empty: why nothing was measured.
  std::string lacks;

  // Wrong elements and broken guards of both placements.
  int64_t wrong() const;
};

// Runs the iterations of one engine on this rank. It has buffers of its own, in the memory of the
// engine. Copies share these. All functions but lacks() and the getters must be called by all ranks
// alike.
class Measurer {
 public:
  // With buffers for rows of up to `max_bytes` bytes. `daemon` is a process whose processor time this
  // rank reports in addition to its own; 0: none.
  static Result<Measurer> make(Communicator& communicator, Settings settings, size_t max_bytes,
                               pid_t daemon = 0);

  // One round of one row. Every rank gets the same result, except for sent_bytes.
  Result<RowResult> measure(const Row& row, Pattern& pattern);

  // Wrong elements that this rank itself has seen so far. Unlike Measurement::wrong it does not rely on
  // what is being measured.
  int64_t wrong_here() const { return wrong_here_; }

  // The raw figures of all rounds of one placement. measure_in_turn() interleaves the rounds of several
  // engines.
  struct Series {
    // One entry for each iteration of each round: the time of the slowest rank.
    std::vector<double> times_us;
    std::vector<double> round_p50_us;
    // Summed over all rounds, and over all ranks.
    double cpu_s = 0;
    std::map<std::string, uint64_t> sent_bytes;
  };
  // Runs one round and adds its figures to `series`.
  Status run_round(const Row& row, Placement placement, Pattern& pattern, Series& series);
  // Sums up all rounds, and verifies.
  Result<Measurement> conclude(const Row& row, Placement placement, Pattern& pattern, const Series& series);

  // Why the engine cannot run the row; empty: it can.
  std::string lacks(const Row& row) const;
  int ranks() const { return communicator_->ranks(); }

 private:
  Measurer(Communicator& communicator, Settings settings, Buffer send, Buffer recv, pid_t daemon)
      : communicator_(&communicator),
        settings_(settings),
        meter_(daemon),
        send_(std::move(send)),
        recv_(std::move(recv)) {}

  // One iteration.
  Status run(const Row& row, const Shape& shape, Placement placement);
  // Writes this rank's data into the buffers, and resets what will be written.
  void load(const Row& row, const Shape& shape, Placement placement, Pattern& pattern);
  // The numbers of wrong elements and broken guards in this rank's buffers.
  int64_t verify(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const;
  // The part of verify() that depends on the collective.
  int64_t verify_received(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const;
  int64_t verify_scattered(const Shape& shape, size_t element, bool in_place, Pattern& pattern) const;

  Communicator* communicator_;
  Settings settings_;
  // Reads the use of this process and, on one rank of each node, that of the daemon.
  ResourceMeter meter_;
  Buffer send_;
  // In place, the only one that is used.
  Buffer recv_;
  int64_t wrong_here_ = 0;
};

// Measures the row on every engine, in `rounds` rounds; in each of them every engine has its turn (A B A
// B). The results are in the order of the measurers. Ratios are those to the measurer with index
// `reference`. All ranks must call it.
Result<std::vector<RowResult>> measure_in_turn(std::vector<Measurer>& measurers, size_t reference, int rounds,
                                               const Row& row, Pattern& pattern);

}  // namespace hdt::bench
