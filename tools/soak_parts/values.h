// values.h: what ranks contribute and what must come out, as functions of seed, operation and rank. All
// numbers are whole, and so small that their sums are exact in every type and in every order. So results
// can be compared bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::soak {

// The key of a contribution. Every rank computes the same one, which is how ranks know each other's
// data.
uint64_t key_of(uint64_t seed, uint64_t group, uint64_t operation, uint64_t rank);

// Writes `count` elements of the contribution `key` to `place`.
void fill(void* place, hdtDataType_t type, size_t count, uint64_t key);

// Whether `count` elements at `place` are the sum of the contributions `keys`, from element `first` of
// each on.
bool is_sum(const void* place, hdtDataType_t type, size_t first, size_t count,
            const std::vector<uint64_t>& keys);

}  // namespace hdt::soak
