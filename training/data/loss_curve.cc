// loss_curve.cc: the script. A line without data ends a piece of the curve, so that points which are left out
// leave a gap.
#include "training/data/loss_curve.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "training/data/plot.h"

namespace hdt::training {
namespace {

// The axis is logarithmic if a linear one would show one wall. A curve of few points is not smoothed. Bezier
// smoothing does not lag behind a falling loss, as a running average would, and it keeps the ends.
constexpr const char* kPlot = R"(set xlabel 'step'
set ylabel 'loss (nats per token)'
set grid lc rgb '#e6eaf0'
set border 3
set tics nomirror
set rmargin 10
stats $loss using 2 name 'loss' nooutput
if (loss_min > 0 && loss_max > 200 * loss_min) {
  set logscale y
  set ylabel 'loss (nats per token), logarithmic'
}
set label sprintf('%.4g', last_loss) at last_step, last_loss left offset 1, 0 point pt 7 ps 0.5 lc rgb '#1d4ed8'
smoothed = points >= 10
plot $loss using 1:2 with lines lc rgb (smoothed ? '#9dbcf5' : '#1d4ed8') title 'each step', \
  entropy lw 1.6 dt 2 lc rgb '#c2570c' title sprintf('unigram entropy %.3f', entropy), \
  $loss using 1:(smoothed ? $2 : NaN) smooth bezier lw 2.4 lc rgb '#1d4ed8' title (smoothed ? 'smoothed' : '')
)";

}  // namespace

std::string loss_curve_script(const LossCurve& curve) {
  // gnuplot's arithmetic overflows near the end of double's range.
  constexpr double kGreatest = 1e100;
  std::string data;
  LossPoint last;
  size_t drawn = 0;
  for (const LossPoint& point : curve.points) {
    // Written so that NaN is left out, too.
    if (!(std::abs(point.loss) <= kGreatest)) {
      data += "\n";
      continue;
    }
    fmt::format_to(std::back_inserter(data), "{} {}\n", point.step, point.loss);
    last = point;
    ++drawn;
  }
  std::string title = "Training loss";
  if (!curve.subtitle.empty()) title += ": " + curve.subtitle;
  if (const size_t skipped = curve.points.size() - drawn; skipped > 0) {
    title +=
        fmt::format(" ({} {} left out: the loss was not finite)", skipped, skipped == 1 ? "point" : "points");
  }
  std::string script = plot_head(960, 540, title);
  // A plot of no points is an error for gnuplot: an empty one is drawn.
  if (drawn == 0)
    return script + "set label 'no points to draw' at graph 0.5, 0.5 center\nplot [0:1] [0:1] NaN notitle\n";
  fmt::format_to(std::back_inserter(script), "points = {}\nlast_step = {}.0\nlast_loss = {:e}\n", drawn,
                 last.step, last.loss);
  script += std::isfinite(curve.unigram_entropy) ? fmt::format("entropy = {:e}\n", curve.unigram_entropy)
                                                 : "entropy = NaN\n";
  return script + "$loss << END_OF_LOSS\n" + data + "END_OF_LOSS\n" + kPlot;
}

Result<std::string> write_loss_curve(const LossCurve& curve, const std::string& path) {
  return write_plot(path, loss_curve_script(curve));
}

}  // namespace hdt::training
