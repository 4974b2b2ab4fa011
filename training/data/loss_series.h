// loss_series.h: what a loss curve draws of its points: pieces without gaps, smoothed, and not more than can
// be seen.
#pragma once

#include <cstddef>
#include <vector>

#include "training/data/loss_curve.h"

namespace hdt::training {

using LossPiece = std::vector<LossPoint>;

struct LossPieces {
  std::vector<LossPiece> pieces;  // none empty; a point left out ends a piece
  size_t skipped = 0;
};

// Leaves out what cannot be drawn: NaN, infinity, and magnitudes beyond 1e100.
LossPieces drawable_pieces(const std::vector<LossPoint>& points);

// Each piece smoothed by itself: at each point a line is fitted to the neighbours on both sides, with weights
// that fall off exponentially and are together as wide as `window` points. Unlike a running average it does
// not lag behind a falling loss, and it does not flatten the ends.
std::vector<LossPiece> smoothed_pieces(const std::vector<LossPiece>& pieces, size_t window);

// At most four points of each of `columns` equal runs of points: the first, the least, the greatest and the
// last, so that the drawing looks the same.
LossPiece thinned(const LossPiece& piece, size_t columns);

}  // namespace hdt::training
