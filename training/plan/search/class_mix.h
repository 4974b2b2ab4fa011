// class_mix.h: how many replicas of each class a cluster gets.
//
// In a step of a given length a replica of a class can take so many samples. The most samples for the devices
// there are is an integer program; here: its linear relaxation decides on replicas of several device kinds
// (simplex; few constraints, many columns), rounded down, or up one at a time; what is left of each kind is
// filled exactly by dynamic programming over the classes of that kind alone.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/search/replica_class.h"

namespace hdt::plan {

// The x >= 0 with the greatest sum of value[i] x[i] and sum of use[i][k] x[i] <= capacity[k]. Uses are not
// negative, and each column uses something.
std::vector<double> solve_packing(const std::vector<double>& value, const std::vector<std::vector<int>>& use,
                                  const std::vector<int>& capacity);

struct ClassMix {
  std::vector<int> replicas;  // of each class
  int64_t samples = 0;        // that they can take
};

ClassMix mix_classes(const std::vector<ReplicaClass>& classes, const std::vector<int>& devices,
                     double step_seconds);

}  // namespace hdt::plan
