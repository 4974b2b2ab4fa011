// pattern.h: the data of a run, and its right result.
//
// The data of each rank is a pseudo-random sequence of kPeriod elements, repeated: element i of rank r
// is contribution(r)[i mod kPeriod]. So the result repeats too. It is computed for one period, and every
// element of every buffer is compared at the speed of memcmp. The period is a prime number. No shift by
// a fragment (a power of two, a multiple of a page) maps the data onto itself, so data at a wrong place
// is found.
//
// The values are chosen so that the result is exact and does not depend on the order of the reduction:
//    integers        full range; sums and products wrap (avg: small enough that the sum does not wrap)
//                    bitwise reductions are of integers only
//    sum, avg        whole numbers; every partial sum stays below 2^significand bits
//    prod            +-1, +-2, +-1/2; every partial product is a power of two within the exponent range
//    min, max, none  whole numbers up to 2^significand bits
// Only a floating avg over a number of ranks that is no power of two has a tolerance: two units in the
// last place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::bench {

// The largest prime number below 2^16.
inline constexpr size_t kPeriod = 65521;

// A periodic sequence of elements of one type. Not changed after the constructor.
class Sequence {
 public:
  // `period` holds the elements of one period, or fewer if no index beyond them is ever asked for. The
  // tolerance is relative to the expected value.
  Sequence(hdtDataType_t type, std::vector<std::byte> period, double relative_tolerance = 0);

  // Writes the elements [first, first + count) of the sequence to `elements`.
  void fill(void* elements, uint64_t first, size_t count) const;
  // How many of `count` elements differ from those of the sequence from `first` on, by more than the
  // tolerance. A NaN always differs.
  size_t count_wrong(const void* elements, uint64_t first, size_t count) const;

 private:
  // Whether the element is right at this position of the period, within the tolerance.
  bool equal(const std::byte* element, size_t position) const;

  hdtDataType_t type_;
  size_t element_bytes_;
  size_t length_;  // elements held; less than kPeriod if no index beyond is ever asked for
  std::vector<std::byte> period_;
  double relative_tolerance_;
};

// The data of all ranks for one type and reduction. Sequences are made when they are first asked for,
// and kept: one Pattern serves a whole sweep over sizes.
class Pattern {
 public:
  // For `ranks` ranks, and for indices below `elements`. Without `op`: data that is only moved. The same
  // seed gives the same data on every rank.
  Pattern(hdtDataType_t type, std::optional<hdtRedOp_t> op, int ranks, uint64_t seed, size_t elements);

  // The data of a rank; any rank may ask for that of any other.
  const Sequence& contribution(int rank);
  // The reduction of all ranks' contributions. There must be an op.
  const Sequence& reduced();

 private:
  // One element of one rank's data, by the rules above.
  void element(int rank, size_t index, void* out) const;
  // One element of the reduction.
  void reduce_element(size_t index, void* out) const;

  hdtDataType_t type_;
  std::optional<hdtRedOp_t> op_;
  int ranks_;
  uint64_t seed_;
  size_t length_;
  // By rank: what was asked for so far.
  std::map<int, Sequence> contributions_;
  std::optional<Sequence> reduced_;
};

}  // namespace hdt::bench
