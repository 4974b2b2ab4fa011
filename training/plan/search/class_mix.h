// class_mix.h: how many replicas of each class a cluster gets.
//
// In a step of a given length, a replica of a class can process so many samples. The mix that
// processes the most samples is the solution of an integer program, which is solved in two parts. Its
// linear relaxation (simplex; few constraints, many columns) decides on replicas of several device
// kinds; their numbers are rounded down, or up for one class at a time. The devices that are left of
// each kind are then given, exactly, to classes of that kind alone by dynamic programming.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/search/replica_kind.h"

namespace hdt::plan {

// Returns the x >= 0 with the greatest sum of value[i] x[i] under sum of use[i][k] x[i] <= capacity[k]
// for each k. Uses must not be negative, and each column must use something; then the maximum is finite.
std::vector<double> solve_packing(const std::vector<double>& value, const std::vector<std::vector<int>>& use,
                                  const std::vector<int>& capacity);

// The numbers of replicas, and what they process.
struct ClassMix {
  // By class.
  std::vector<int> replicas;
  // The samples that they can process in one step together.
  int64_t samples = 0;
};

// The mix that processes the most samples in a step of `step_seconds`. `devices` are those of the
// cluster by kind of node, of which the mix takes no more than there are. 0 samples if no class has time
// for one micro-batch.
ClassMix mix_classes(const std::vector<ReplicaKind>& classes, const std::vector<int>& devices,
                     double step_seconds);

}  // namespace hdt::plan
