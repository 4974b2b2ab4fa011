// measure.h: times and verifies one row on a group.
//
// Out of place, the results of the last timed iteration are verified. In place, the timed iterations run on
// zeros (a sum that feeds itself overflows, a product becomes subnormal and slow), and one more run on data
// is verified.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/commbench/buffer.h"
#include "bench/commbench/communicator.h"
#include "bench/commbench/pattern.h"
#include "bench/commbench/plan.h"
#include "bench/commbench/statistics.h"

namespace hdt::bench {

struct Settings {
  int iterations = 20;
  int warm_up = 5;
  bool check = true;
};

struct Measurement {
  Timing timing;
  std::optional<int64_t> wrong;  // elements and guards, over all ranks; none: not checked
};

struct RowResult {
  Row row;
  Shape shape;
  Measurement out_of_place;
  std::optional<Measurement> in_place;
};

class Measurer {
 public:
  // Buffers for rows of up to `max_bytes`.
  static Result<Measurer> make(Communicator& communicator, Settings settings, size_t max_bytes);

  // Collective over the group. Every rank gets the same result.
  Result<RowResult> measure(const Row& row, Pattern& pattern);

  // Wrong elements this rank itself has seen so far: does not rely on what is measured.
  int64_t wrong_here() const { return wrong_here_; }

 private:
  Measurer(Communicator& communicator, Settings settings, Buffer send, Buffer recv)
      : communicator_(&communicator), settings_(settings), send_(std::move(send)), recv_(std::move(recv)) {}

  Result<Measurement> measure_placement(const Row& row, const Shape& shape, Placement placement,
                                        Pattern& pattern);
  Status run(const Row& row, const Shape& shape, Placement placement);
  void load(const Row& row, const Shape& shape, Placement placement, Pattern& pattern);
  int64_t verify(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const;
  int64_t verify_received(const Row& row, const Shape& shape, Placement placement, Pattern& pattern) const;

  Communicator* communicator_;
  Settings settings_;
  Buffer send_;
  Buffer recv_;  // in place: the only one
  int64_t wrong_here_ = 0;
};

}  // namespace hdt::bench
