// values.h: what ranks contribute, and what must come out, as a function of seed, operation and rank. All
// numbers are whole and so small that their sums are exact in every type, whatever the order: results can be
// compared bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::soak {

// Names a contribution: the same on every rank that computes it.
uint64_t key_of(uint64_t seed, uint64_t group, uint64_t operation, uint64_t rank);

// Writes `count` elements of the contribution `key`.
void fill(void* place, hdtDataType_t type, size_t count, uint64_t key);

// Whether the elements are the sum of the contributions `keys`, elements `first` and on of each.
bool is_sum(const void* place, hdtDataType_t type, size_t first, size_t count,
            const std::vector<uint64_t>& keys);

}  // namespace hdt::soak
