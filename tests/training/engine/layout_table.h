// layout_table.h: the layouts on which training must be the same as in one process.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "training/engine/layout.h"
#include "training/engine/shards.h"

namespace hdt::training::testing {

struct NamedLayout {
  std::string name;
  Layout layout;
};

// Equal and unequal replicas, with unequal stages, sizes and counts of micro-batches.
std::vector<NamedLayout> layout_table();
// `count` further ones.
std::vector<NamedLayout> random_layouts(int count, std::mt19937& random);

// A weight for each rank, some of them 0, of which each owner set has one that is positive.
ShardOptions random_shards(const Layout& layout, std::mt19937& random);

// HDT_TEST_SEED, else another one each time.
unsigned test_seed();

// All samples of a step on one rank.
Layout one_process(const Layout& layout);

}  // namespace hdt::training::testing
