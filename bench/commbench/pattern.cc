// pattern.cc: makes the data, reduces it for reference, and compares.
#include "bench/commbench/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/commbench/element.h"
#include "bench/commbench/names.h"

namespace hdt::bench {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// If at most `limit` of the ranks may contribute anything but the neutral value: whether `rank` does so
// at the index whose hash is `where`. The turn goes round, so every rank contributes at some index.
bool takes_part(int rank, uint64_t where, int ranks, int64_t limit) {
  const auto stride = static_cast<uint64_t>((ranks + limit - 1) / limit);
  return (static_cast<uint64_t>(rank) + where) % stride == 0;
}

// A whole number from -limit to limit.
double signed_whole(uint64_t random, int64_t limit) {
  return static_cast<double>(static_cast<int64_t>(random % static_cast<uint64_t>(2 * limit + 1)) - limit);
}

// Factors are 1/2, 1 and 2, so this many ranks keep all partial products normal and finite.
int max_factors(hdtDataType_t type) { return type == HDT_FLOAT8E4M3 ? 6 : 14; }

}  // namespace

Sequence::Sequence(hdtDataType_t type, std::vector<std::byte> period, double relative_tolerance)
    : type_(type),
      element_bytes_(element_bytes(type)),
      length_(period.size() / element_bytes_),
      period_(std::move(period)),
      relative_tolerance_(relative_tolerance) {}

// Copies whole stretches, up to the end of the period each time.
void Sequence::fill(void* elements, uint64_t first, size_t count) const {
  auto* out = static_cast<std::byte*>(elements);
  for (size_t done = 0; done < count;) {
    const size_t position = (first + done) % kPeriod;
    const size_t part = std::min(count - done, length_ - position);
    std::memcpy(out + done * element_bytes_, period_.data() + position * element_bytes_,
                part * element_bytes_);
    done += part;
  }
}

size_t Sequence::count_wrong(const void* elements, uint64_t first, size_t count) const {
  const auto* in = static_cast<const std::byte*>(elements);
  size_t wrong = 0;
  for (size_t done = 0; done < count;) {
    const size_t position = (first + done) % kPeriod;
    const size_t part = std::min(count - done, length_ - position);
    const std::byte* got = in + done * element_bytes_;
    // The elements are looked at one by one only if the stretch is not right as a whole.
    if (std::memcmp(got, period_.data() + position * element_bytes_, part * element_bytes_) != 0) {
      for (size_t i = 0; i < part; ++i) wrong += equal(got + i * element_bytes_, position + i) ? 0 : 1;
    }
    done += part;
  }
  return wrong;
}

bool Sequence::equal(const std::byte* element, size_t position) const {
  const std::byte* right = period_.data() + position * element_bytes_;
  if (std::memcmp(element, right, element_bytes_) == 0) return true;
  if (is_integer(type_)) return false;
  // +0 and -0 are equal, though their bytes differ.
  const double expected = load_float(type_, right);
  return std::fabs(load_float(type_, element) - expected) <= relative_tolerance_ * std::fabs(expected);
}

Pattern::Pattern(hdtDataType_t type, std::optional<hdtRedOp_t> op, int ranks, uint64_t seed, size_t elements)
    : type_(type), op_(op), ranks_(ranks), seed_(seed), length_(std::min(elements, kPeriod)) {}

void Pattern::element(int rank, size_t index, void* out) const {
  // `where` is the same on all ranks, `random` differs.
  const uint64_t where = mix(seed_ + index);
  const uint64_t random = mix(where + static_cast<uint64_t>(rank) * 0x632be59bd9b4e019);
  const bool sums = op_ == HDT_SUM || op_ == HDT_AVG;
  // Integers use their full range, except for averages.
  if (is_integer(type_)) {
    if (op_ != HDT_AVG) return store_integer(type_, random, out);
    // The sum must not wrap. If there are more ranks than numbers, some of them contribute 0.
    const int64_t most = (int64_t{1} << std::min(significand_bits(type_) - 1, 30)) - 1;
    const int64_t limit = std::max<int64_t>(most / ranks_, 1);
    const bool contributes = takes_part(rank, where, ranks_, most);
    const auto value = contributes ? std::llround(signed_whole(random, limit)) : 0;
    store_integer(type_, static_cast<uint64_t>(is_unsigned(type_) ? std::llabs(value) : value), out);
    return;
  }
  // Every whole number up to this one is exact in the type.
  const int64_t exact = int64_t{1} << significand_bits(type_);
  double value;
  if (sums) {
    // The partial sums of all contributions stay below `exact`.
    value = takes_part(rank, where, ranks_, exact)
                ? signed_whole(random, std::max<int64_t>(exact / ranks_, 1))
                : 0;
    // Powers of two: their products are exact. At most max_factors() of them are not 1 or -1.
  } else if (op_ == HDT_PROD) {
    const int power =
        takes_part(rank, where, ranks_, max_factors(type_)) ? static_cast<int>(random % 3) - 1 : 0;
    value = std::ldexp((random >> 32) % 2 == 0 ? 1 : -1, power);
  } else {
    value = signed_whole(random, exact);
  }
  store_float(type_, value, out);
}

// In the order of the ranks. By the choice of values, every other order gives the same result.
void Pattern::reduce_element(size_t index, void* out) const {
  std::byte one[8];
  if (is_integer(type_)) {
    uint64_t result = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      element(rank, index, one);
      const uint64_t value = load_integer(type_, one);
      // Integers are compared with their sign, if they have one.
      const bool less =
          is_unsigned(type_) ? value < result : static_cast<int64_t>(value) < static_cast<int64_t>(result);
      if (rank == 0) {
        result = value;
      } else if (op_ == HDT_PROD) {
        result *= value;
      } else if (op_ == HDT_MIN) {
        result = less ? value : result;
      } else if (op_ == HDT_MAX) {
        result = less ? result : value;
      } else if (op_ == HDT_BAND) {
        result &= value;
      } else if (op_ == HDT_BOR) {
        result |= value;
      } else if (op_ == HDT_BXOR) {
        result ^= value;
      } else {
        result += value;
      }
    }
    // Integer averages are cut towards zero.
    if (op_ == HDT_AVG) result = static_cast<uint64_t>(static_cast<int64_t>(result) / ranks_);
    store_integer(type_, result, out);
    return;
  }
  double result = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    element(rank, index, one);
    const double value = load_float(type_, one);
    if (rank == 0) {
      result = value;
    } else if (op_ == HDT_PROD) {
      result *= value;
    } else if (op_ == HDT_MIN) {
      result = std::min(result, value);
    } else if (op_ == HDT_MAX) {
      result = std::max(result, value);
    } else {
      result += value;
    }
  }
  if (op_ == HDT_AVG) result /= ranks_;
  store_float(type_, result, out);
}

const Sequence& Pattern::contribution(int rank) {
  const auto known = contributions_.find(rank);
  if (known != contributions_.end()) return known->second;
  std::vector<std::byte> period(length_ * element_bytes(type_));
  for (size_t i = 0; i < length_; ++i) element(rank, i, period.data() + i * element_bytes(type_));
  return contributions_.emplace(rank, Sequence(type_, std::move(period))).first->second;
}

const Sequence& Pattern::reduced() {
  if (reduced_) return *reduced_;
  std::vector<std::byte> period(length_ * element_bytes(type_));
  for (size_t i = 0; i < length_; ++i) reduce_element(i, period.data() + i * element_bytes(type_));
  // A division by a power of two is exact, all other divisions round.
  const bool exact = op_ != HDT_AVG || (ranks_ & (ranks_ - 1)) == 0 || is_integer(type_);
  return reduced_.emplace(type_, std::move(period), exact ? 0 : std::ldexp(2.0, 1 - significand_bits(type_)));
}

}  // namespace hdt::bench
