// parallel.h: work over memory that may be done on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace hdt::training {

// Calls work(piece) for the pieces 0 .. pieces - 1 and returns when all have ended. Several may run at once,
// in any order. `work` must not throw.
using ForEachPiece = std::function<void(size_t pieces, const std::function<void(size_t piece)>& work)>;

// On the caller's thread.
inline void for_each_piece_here(size_t pieces, const std::function<void(size_t piece)>& work) {
  for (size_t piece = 0; piece < pieces; ++piece) work(piece);
}

// The elements that one piece of an update or of a sum has: far more work than starting it takes. The pieces
// do not depend on the number of threads, so neither do the results.
inline constexpr size_t kPieceElements = size_t{1} << 16;

}  // namespace hdt::training
