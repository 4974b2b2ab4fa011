// pattern.h: the data of a run and its right result.
//
// Every rank's data is a pseudo-random sequence of kPeriod elements, repeated: rank r's element i is
// contribution(r)[i mod kPeriod], so the result repeats too, is computed once a period, and every element of
// every buffer is compared at the speed of memcmp. The period is a prime: no shift by a chunk (a power of
// two, a multiple of a page) maps the data onto itself, so a misplaced chunk is found.
//
// Values are chosen so that the result does not depend on the order of reduction and is exact:
//   integers        full range; sums and products wrap (avg: small enough that the sum does not wrap)
//   sum, avg        whole numbers; every partial sum stays below 2^significand bits
//   prod            +-1, +-2, +-1/2; every partial product is a power of two within the exponent range
//   min, max, none  whole numbers up to 2^significand bits
// Only a floating avg over a number of ranks that is no power of two has a tolerance: two units in the last
// place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::bench {

inline constexpr size_t kPeriod = 65521;

class Sequence {
 public:
  Sequence(hdtDataType_t type, std::vector<std::byte> period, double relative_tolerance = 0);

  // Elements [first, first + count) of the sequence into `elements`.
  void fill(void* elements, uint64_t first, size_t count) const;
  // How many of `count` elements differ from the sequence's from `first` on (by more than the tolerance; NaN
  // differs).
  size_t count_wrong(const void* elements, uint64_t first, size_t count) const;

 private:
  bool equal(const std::byte* element, size_t position) const;

  hdtDataType_t type_;
  size_t element_bytes_;
  size_t length_;  // elements held; less than kPeriod if no index beyond is ever asked for
  std::vector<std::byte> period_;
  double relative_tolerance_;
};

// Sequences are made when first asked for and kept: one Pattern serves a whole sweep over sizes.
class Pattern {
 public:
  // Data of `ranks` ranks for `op` (none: data that is only moved), for indices below `elements`.
  Pattern(hdtDataType_t type, std::optional<hdtRedOp_t> op, int ranks, uint64_t seed, size_t elements);

  const Sequence& contribution(int rank);
  // The reduction of all ranks' contributions. Needs an op.
  const Sequence& reduced();

 private:
  void element(int rank, size_t index, void* out) const;
  void reduce_element(size_t index, void* out) const;

  hdtDataType_t type_;
  std::optional<hdtRedOp_t> op_;
  int ranks_;
  uint64_t seed_;
  size_t length_;
  std::map<int, Sequence> contributions_;
  std::optional<Sequence> reduced_;
};

}  // namespace hdt::bench
