// parallel.h: the engine's own work on torch's threads.
#pragma once

#include <cstddef>
#include <functional>

namespace hdt::training {

// A ForEachPiece (training/engine/parallel.h) on as many threads as set_torch_threads() has said. They are
// those of torch's operations, which wait meanwhile.
void for_each_piece_by_torch(size_t pieces, const std::function<void(size_t piece)>& work);

}  // namespace hdt::training
