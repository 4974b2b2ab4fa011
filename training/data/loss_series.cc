#include "training/data/loss_series.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace hdt::training {

LossPieces drawable_pieces(const std::vector<LossPoint>& points) {
  constexpr double kGreatest = 1e100;
  LossPieces result;
  bool open = false;
  for (const LossPoint& point : points) {
    if (!(std::abs(point.loss) <= kGreatest)) {  // true for NaN
      ++result.skipped;
      open = false;
      continue;
    }
    if (!open) result.pieces.emplace_back();
    open = true;
    result.pieces.back().push_back(point);
  }
  return result;
}

std::vector<LossPiece> smoothed_pieces(const std::vector<LossPiece>& pieces, size_t window) {
  const double kept = 1.0 - 2.0 / (static_cast<double>(window) + 1);
  double sum = 0;
  double weight = 0;
  std::vector<LossPiece> result = pieces;
  for (LossPiece& piece : result) {
    for (LossPoint& point : piece) {
      sum = sum * kept + point.loss;
      weight = weight * kept + 1;
      point.loss = sum / weight;
    }
  }
  return result;
}

LossPiece thinned(const LossPiece& piece, size_t columns) {
  if (piece.size() <= 4 * columns) return piece;
  const auto less = [](const LossPoint& a, const LossPoint& b) { return a.loss < b.loss; };
  LossPiece result;
  for (size_t column = 0; column < columns; ++column) {
    const auto begin = piece.begin() + static_cast<ptrdiff_t>(piece.size() * column / columns);
    const auto end = piece.begin() + static_cast<ptrdiff_t>(piece.size() * (column + 1) / columns);
    const auto [least, greatest] = std::minmax_element(begin, end, less);
    std::array kept = {begin, std::min(least, greatest), std::max(least, greatest), end - 1};
    const auto last = std::unique(kept.begin(), kept.end());
    for (auto at = kept.begin(); at != last; ++at) result.push_back(**at);
  }
  return result;
}

}  // namespace hdt::training
