// measure.h: times and verifies one row on a group, on one engine or on several in turn.
//
// Out of place, the results of the last timed iteration are verified. In place, the timed iterations run on
// zeros (a sum that feeds itself overflows, a product becomes subnormal and slow), and one more run on data
// is verified.
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

struct Settings {
  int iterations = 20;  // a round
  int warm_up = 5;      // before each round
  bool check = true;
};

struct Measurement {
  Timing timing;                 // over the iterations of all rounds
  std::optional<int64_t> wrong;  // elements and guards, over all ranks; none: not checked
  std::vector<double> round_p50_us;
  std::optional<double> ratio;                 // of times to the reference engine's: median over rounds
  double cpu_s_per_gb = 0;                     // all ranks (and their daemons), per 10^9 bytes of bus traffic
  std::map<std::string, uint64_t> sent_bytes;  // by interface of this rank's machine, an iteration
};

struct RowResult {
  Row row;
  Shape shape;
  Measurement out_of_place;
  std::optional<Measurement> in_place;
  size_t engine = 0;  // index in the run
  std::string lacks;  // not empty: why nothing was measured

  // Wrong elements and guards of both placements.
  int64_t wrong() const;
};

// Runs one engine's iterations.
class Measurer {
 public:
  // Buffers for rows of up to `max_bytes`. `daemon`: whose processor time this rank reports besides its own.
  static Result<Measurer> make(Communicator& communicator, Settings settings, size_t max_bytes,
                               pid_t daemon = 0);

  // Collective over the group. Every rank gets the same result, but for sent_bytes.
  Result<RowResult> measure(const Row& row, Pattern& pattern);

  // Wrong elements this rank itself has seen so far: does not rely on what is measured.
  int64_t wrong_here() const { return wrong_here_; }

  // One round of iterations, and the figures of all rounds of a placement: measure_in_turn interleaves them.
  struct Series {
    std::vector<double> times_us;  // of the slowest rank, every iteration of every round
    std::vector<double> round_p50_us;
    double cpu_s = 0;
    std::map<std::string, uint64_t> sent_bytes;
  };
  Status run_round(const Row& row, Placement placement, Pattern& pattern, Series& series);
  Result<Measurement> conclude(const Row& row, Placement placement, Pattern& pattern, const Series& series);

  std::string lacks(const Row& row) const;
  int ranks() const { return communicator_->ranks(); }

 private:
  Measurer(Communicator& communicator, Settings settings, Buffer send, Buffer recv, pid_t daemon)
      : communicator_(&communicator),
        settings_(settings),
        meter_(daemon),
        send_(std::move(send)),
        recv_(std::move(recv)) {}

  Status run(const Row& row, const Shape& shape, Placement placement);
  void load(const Row& row, const Shape& shape, Placement placement, Pattern& pattern);
  int64_t verify(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const;
  int64_t verify_received(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const;
  int64_t verify_scattered(const Shape& shape, size_t element, bool in_place, Pattern& pattern) const;

  Communicator* communicator_;
  Settings settings_;
  ResourceMeter meter_;
  Buffer send_;
  Buffer recv_;  // in place: the only one
  int64_t wrong_here_ = 0;
};

// The row on every engine: `rounds` rounds, in each of which every engine has its turn (A B A B). Results
// stand in the order of the measurers; ratios are to the measurer `reference`. Collective over the group.
Result<std::vector<RowResult>> measure_in_turn(std::vector<Measurer>& measurers, size_t reference, int rounds,
                                               const Row& row, Pattern& pattern);

}  // namespace hdt::bench
