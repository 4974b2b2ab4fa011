// loss_series.cc: prepares points for the drawing. The smoothing is a local linear regression with
// exponential weights, computed in O(n) by sums that move along with the point.
#include "training/data/loss_series.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace hdt::training {

namespace {

// Sums over the points on one side of a point, by their distance d to it, with weights w = kept^d.
struct OneSide {
  double w = 0, wd = 0, wdd = 0;  // of w, w d, w d^2
  double wy = 0, wdy = 0;         // of w y, w d y

  // Moves one step away from `y`, which is at distance 1 then. The others go from d to d + 1: (d + 1)^2 =
  // d^2 + 2d + 1 gives the update of the sums. `y` itself enters with w = 1 at distance 0 before the step.
  void take_in(double y, double kept) {
    w += 1;
    wy += y;
    wdd = kept * (wdd + 2 * wd + w);
    wd = kept * (wd + w);
    wdy = kept * (wdy + wy);
    w *= kept;
    wy *= kept;
  }
};

// The value at 0 of the weighted least-squares line through both sides and the point itself. s and t are
// the sums of the normal equations; distances on the left count as negative. A point alone gives the
// determinant 0, and then the mean.
double fitted(const OneSide& before, double own, const OneSide& after) {
  const double s0 = before.w + 1 + after.w;
  const double s1 = after.wd - before.wd;
  const double s2 = after.wdd + before.wdd;
  const double t0 = before.wy + own + after.wy;
  const double t1 = after.wdy - before.wdy;
  const double determinant = s0 * s2 - s1 * s1;
  return determinant > 1e-12 ? (s2 * t0 - s1 * t1) / determinant : t0 / s0;
}

}  // namespace

LossPieces drawable_pieces(const std::vector<LossPoint>& points) {
  constexpr double kGreatest = 1e100;  // leaves room for the sums of the smoothing
  LossPieces result;
  bool open = false;
  for (const LossPoint& point : points) {
    // Written so that NaN is left out, too.
    if (!(std::abs(point.loss) <= kGreatest)) {
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
  // The weights kept^|distance| sum to (1 + kept) / (1 - kept), which is to be `window`.
  const auto width = static_cast<double>(std::max<size_t>(window, 1));
  const double kept = (width - 1) / (width + 1);
  std::vector<LossPiece> result = pieces;
  for (LossPiece& piece : result) {
    // One pass from the left keeps all sums; the pass from the right needs only the current ones and
    // writes the results in place.
    std::vector<OneSide> before(piece.size());
    for (size_t i = 1; i < piece.size(); ++i) {
      before[i] = before[i - 1];
      before[i].take_in(piece[i - 1].loss, kept);
    }
    OneSide after;
    for (size_t i = piece.size(); i-- > 0;) {
      const double own = piece[i].loss;
      piece[i].loss = fitted(before[i], own, after);
      after.take_in(own, kept);
    }
  }
  return result;
}

LossPiece thinned(const LossPiece& piece, size_t columns) {
  if (piece.size() <= 4 * columns) return piece;
  // Extremes must stay in the order of their steps, hence the sort of least and greatest by position.
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
