// saboteur.h: faults on purpose, which a check of equal runs must find.
#pragma once

#include "tests/training/engine/training_run.h"
#include "training/engine/layout.h"

namespace hdt::training::testing {

enum class Fault {
  kNone,
  // The last rank leaves out what one allgather brings, once.
  kStaleParameters,
  // The last rank counts its gradients twice in the norm.
  kNormCountedTwice,
  // Gradients are weighted such that each kind of replica (size and count of micro-batches) has the same
  // weight, and not each sample.
  kKindsWeighAlike,
  // Each micro-batch has the same weight, whatever its size.
  kSizesDoNotWeigh,
  // The first sample of each further replica is the last one of the replica before.
  kSamplesOverlap,
  // The last rank updates with its own gradients, and not with the sums.
  kSumsLost,
};

// `layout` must outlive the result.
Sabotage sabotage(Fault fault, const Layout& layout);

}  // namespace hdt::training::testing
