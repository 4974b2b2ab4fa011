// memory_check.h: whether a node has the memory that its ranks certainly need, before any of them takes it:
// the kernel ends a process that takes too much, without a word.
#pragma once

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Parameters, gradients and moments of each rank, summed over the ranks of this one's node, against what is
// available there. Activations come on top and are not counted. kSystem: it is not enough, by how much, and
// what would do. Ok where the kernel does not say what is available. All ranks of `world` must call it,
// before they allocate; each gets its own node's answer.
Status check_memory(const TrainFlags& flags, const training::Layout& layout, Communicator& world);

}  // namespace hdt::tools
