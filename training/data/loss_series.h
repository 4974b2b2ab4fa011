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

// Exponential moving average over about `window` points, without the pull of a start value (as Adam's bias
// correction); it goes on over gaps.
std::vector<LossPiece> smoothed_pieces(const std::vector<LossPiece>& pieces, size_t window);

// At most four points of each of `columns` equal runs of points: the first, the least, the greatest and the
// last, so that the drawing looks the same.
LossPiece thinned(const LossPiece& piece, size_t columns);

}  // namespace hdt::training
