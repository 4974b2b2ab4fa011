// memory_check.h: whether a node has the memory that its ranks certainly need, before any of them takes it:
// the kernel ends a process that takes too much, without a word.
#pragma once

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// Parameters, gradients and moments of each rank, and the keys and values of a text that it generates, summed
// over the ranks of this one's node, against what is available there. Activations come on top and are not
// counted. kSystem: it is not enough, by how much, and what would do. Ok where the kernel does not say what
// is available. All ranks of `world` must call it, before they allocate; each gets its own node's answer.
Status check_memory(const TrainFlags& flags, const training::Layout& layout, Communicator& world);

// Bytes for each parameter of a unit.
struct BytesOfParameter {
  double everywhere = 0;  // on every owner: itself and its gradient
  double states = 0;      // of the optimizer; an owner has its share of it
  // In fp16: the fp32 copy and its gradient, from forward to backward. Layers that are recomputed have them
  // one at a time, which is not counted.
  double copies = 0;
};
BytesOfParameter bytes_of_parameter(const training::NumberTypes& types);

// How many layers certainly do not fit beyond: the whole part of `bytes` over what one layer needs at least.
// The embedding and the head are not counted, nor are states that are sharded: check_memory() does.
int most_layers_in(double bytes, const TrainFlags& flags);

}  // namespace hdt::tools
