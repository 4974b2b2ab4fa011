// weight_check.h: whether all replicas hold the same model, to the last bit. They do as long as every rank
// computes and receives what it should: sums are the same bits on all owners. Memory that loses bits, or a
// fault of a device or of this software, ends that, and training would go on without a sign of it.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// A tensor that two owners hold with different bits. With two replicas nobody knows which one is right.
struct WeightDifference {
  std::string tensor;
  int rank = 0;   // the first rank whose tensor differs ...
  int other = 0;  // ... from that of this rank, the owner in replica 0
};

// Compares the parameters of all replicas by a CRC32C of each unit; returns the first difference, the same on
// all ranks, or nothing. All ranks call it after the same step, with their parameters whole
// (Trainer::settle()). It costs one operation of two numbers for each unit of the model, and reading the
// parameters once; a difference costs some more operations, which find its tensor and rank.
Result<std::optional<WeightDifference>> find_weight_difference(const Layout& layout, UnitMemory& memory,
                                                               Messenger& messenger);

}  // namespace hdt::training
