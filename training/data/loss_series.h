// loss_series.h: what a loss curve draws of its points: pieces without gaps, smoothed, and not more than
// can be seen.
#pragma once

#include <cstddef>
#include <vector>

#include "training/data/loss_curve.h"

namespace hdt::training {

// Points that are drawn as one line, by ascending step.
using LossPiece = std::vector<LossPoint>;

// All pieces of a curve.
struct LossPieces {
  std::vector<LossPiece> pieces;  // none empty; a point left out ends a piece
  size_t skipped = 0;             // points that were left out
};

// Leaves out what cannot be drawn: NaN, infinity, and magnitudes beyond 1e100.
LossPieces drawable_pieces(const std::vector<LossPoint>& points);

// Smooths each piece by itself. At each point a line is fitted to the neighbours on both sides, with
// weights that fall off exponentially and are together as wide as `window` points. Unlike a running
// average this does not lag behind a falling loss, and it does not flatten the ends.
std::vector<LossPiece> smoothed_pieces(const std::vector<LossPiece>& pieces, size_t window);

// At most four points of each of `columns` equal runs of points: the first, the smallest, the largest
// and the last, so that the drawing looks the same.
LossPiece thinned(const LossPiece& piece, size_t columns);

}  // namespace hdt::training
