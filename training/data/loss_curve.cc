// loss_curve.cc: the drawing: scales, frame, raw line, reference line, smoothed line, legend, the last
// value. Coordinates are pixels from the upper left corner. Later elements are painted over earlier
// ones, which decides the order.
#include "training/data/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "training/data/atomic_file.h"
#include "training/data/chart_axis.h"
#include "training/data/loss_series.h"
#include "training/data/svg_writer.h"

namespace hdt::training {
namespace {

// The page in pixels, and the edges of the plot in it.
constexpr int kWidth = 960;
constexpr int kHeight = 540;
constexpr double kLeft = 78;
constexpr double kRight = kWidth - 84;  // room for the value at the end of the curve
constexpr double kTop = 96;
constexpr double kBottom = kHeight - 62;
constexpr int kTicks = 7;
// From this ratio of the largest to the smallest loss on the axis is logarithmic: a linear one would
// show one wall.
constexpr double kLogarithmicFrom = 200;
// Fewer points are not smoothed, as they can be looked at one by one.
constexpr size_t kLeastSmoothed = 10;
// The smoothing window is the number of points divided by this.
constexpr size_t kSmoothingWindows = 40;

// The classes that the elements below refer to.
constexpr const char* kStyle =
    "text { font-family: 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; "
    "}\n"
    ".page { fill: #ffffff; }\n"
    ".title { font-size: 20px; font-weight: 600; fill: #1a202c; }\n"
    ".note { font-size: 13px; fill: #5a6577; }\n"
    ".tick { font-size: 12px; fill: #5a6577; }\n"
    ".value { font-size: 13px; font-weight: 600; fill: #1d4ed8; }\n"
    ".grid { stroke: #e6eaf0; stroke-width: 1; }\n"
    ".axis { stroke: #8a94a6; stroke-width: 1.2; }\n"
    ".raw { fill: none; stroke: #9dbcf5; stroke-width: 1.2; stroke-linejoin: round; }\n"
    ".smooth { fill: none; stroke: #1d4ed8; stroke-width: 2.4; stroke-linejoin: round; stroke-linecap: "
    "round; }\n"
    ".dot { fill: #1d4ed8; }\n"
    ".reference { stroke: #c2570c; stroke-width: 1.6; stroke-dasharray: 7 5; }\n"
    ".reference-text { font-size: 13px; fill: #c2570c; paint-order: stroke; stroke: #ffffff; stroke-width: "
    "4px; }\n";

// From values to pixels. y counts downwards.
struct Scales {
  ChartAxis steps;
  ChartAxis losses;
  double x(double step) const { return kLeft + steps.position(step) * (kRight - kLeft); }
  double y(double loss) const { return kBottom - losses.position(loss) * (kBottom - kTop); }
};

// The ranges of all points and of the reference line.
Scales make_scales(const LossCurve& curve, const std::vector<LossPiece>& pieces) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low = kInfinity;
  double high = -kInfinity;
  double first = kInfinity;
  double last = -kInfinity;
  for (const LossPiece& piece : pieces) {
    for (const LossPoint& point : piece) {
      low = std::min(low, point.loss);
      high = std::max(high, point.loss);
      first = std::min(first, static_cast<double>(point.step));
      last = std::max(last, static_cast<double>(point.step));
    }
  }
  // Without points an axis is drawn all the same.
  if (pieces.empty()) first = last = 0;
  if (first > 0 && first <= 0.05 * last) first = 0;  // an axis from 0 rather than from 1
  if (curve.reference) {
    low = std::min(low, curve.reference->value);
    high = std::max(high, curve.reference->value);
  }
  // There is nothing to draw.
  if (low > high) low = high = 0;
  const bool logarithmic = low > 0 && high / low >= kLogarithmicFrom;
  return {ChartAxis::whole_numbers(first, last, kTicks),
          logarithmic ? ChartAxis::logarithmic(low, high) : ChartAxis::linear(low, high, kTicks)};
}

// A loss for people: three decimals, or four digits for very small and very large ones.
std::string loss_text(double loss) {
  const double size = std::abs(loss);
  return size < 1e5 && size >= 1e-3 ? fmt::format("{:.3f}", loss) : fmt::format("{:.4g}", loss);
}

// Smooths in the scale of the axis. On a logarithmic axis the logarithms are smoothed, because one spike
// would otherwise hide all its neighbours.
std::vector<LossPiece> smoothed_as_drawn(std::vector<LossPiece> pieces, size_t window, bool logarithmic) {
  if (!logarithmic) return smoothed_pieces(pieces, window);
  const auto map = [&pieces](double (*function)(double)) {
    for (LossPiece& piece : pieces) {
      for (LossPoint& point : piece) point.loss = function(point.loss);
    }
  };
  map([](double loss) { return std::log(loss); });
  pieces = smoothed_pieces(pieces, window);
  map([](double logarithm) { return std::exp(logarithm); });
  return pieces;
}

// Page, titles, grid, ticks, axes and their labels.
void draw_frame(SvgWriter& svg, const LossCurve& curve, const Scales& scales) {
  svg.rectangle(0, 0, kWidth, kHeight, "page");
  svg.text({.x = kLeft, .y = curve.subtitle.empty() ? 50.0 : 36.0, .classes = "title", .text = curve.title});
  if (!curve.subtitle.empty()) svg.text({.x = kLeft, .y = 58, .classes = "note", .text = curve.subtitle});
  for (const Tick& tick : scales.losses.ticks()) {
    const double y = scales.y(tick.value);
    svg.line(kLeft, y, kRight, y, "grid");
    svg.text({.x = kLeft - 10, .y = y + 4, .classes = "tick", .anchor = "end", .text = tick.label});
  }
  for (const Tick& tick : scales.steps.ticks()) {
    const double x = scales.x(tick.value);
    svg.line(x, kTop, x, kBottom, "grid");
    svg.line(x, kBottom, x, kBottom + 5, "axis");
    svg.text({.x = x, .y = kBottom + 20, .classes = "tick", .anchor = "middle", .text = tick.label});
  }
  svg.line(kLeft, kBottom, kRight, kBottom, "axis");
  svg.line(kLeft, kTop, kLeft, kBottom, "axis");
  svg.text({.x = (kLeft + kRight) / 2,
            .y = kBottom + 44,
            .classes = "note",
            .anchor = "middle",
            .text = curve.x_label});
  // The label of the y axis reads upwards, around its own middle.
  const std::string turned = fmt::format("rotate(-90 22 {:.1f})", (kTop + kBottom) / 2);
  const std::string label = curve.y_label + (scales.losses.is_logarithmic() ? ", logarithmic" : "");
  svg.text({.x = 22,
            .y = (kTop + kBottom) / 2,
            .classes = "note",
            .anchor = "middle",
            .text = label,
            .transform = turned});
}

// Draws each piece as a line. Pieces are thinned to what the plot's columns can show. A piece of one
// point is drawn as a dot, because a line of one point would not show.
void draw_pieces(SvgWriter& svg, const std::vector<LossPiece>& pieces, const Scales& scales,
                 const char* classes, double dot_radius) {
  for (const LossPiece& piece : pieces) {
    if (piece.size() == 1) {
      svg.circle(scales.x(static_cast<double>(piece[0].step)), scales.y(piece[0].loss), dot_radius, "dot");
      continue;
    }
    std::vector<std::pair<double, double>> points;
    for (const LossPoint& point : thinned(piece, static_cast<size_t>(kRight - kLeft))) {
      points.emplace_back(scales.x(static_cast<double>(point.step)), scales.y(point.loss));
    }
    svg.polyline(points, classes);
  }
}

// Explains the lines. Without a smoothed line there is one entry.
void draw_legend(SvgWriter& svg, const std::string& smooth_label) {
  const double y = kTop - 14;
  svg.line(kLeft, y - 4, kLeft + 24, y - 4, smooth_label.empty() ? "smooth" : "raw");
  svg.text({.x = kLeft + 31, .y = y, .classes = "tick", .text = "each step"});
  if (smooth_label.empty()) return;
  svg.line(kLeft + 110, y - 4, kLeft + 134, y - 4, "smooth");
  svg.text({.x = kLeft + 141, .y = y, .classes = "tick", .text = smooth_label});
}

}  // namespace

LossDrawing draw_loss_curve(const LossCurve& requested) {
  LossCurve curve = requested;
  if (curve.reference && !std::isfinite(curve.reference->value)) curve.reference.reset();
  const LossPieces raw = drawable_pieces(curve.points);
  const size_t count = curve.points.size() - raw.skipped;
  const Scales scales = make_scales(curve, raw.pieces);
  SvgWriter svg(kWidth, kHeight, kStyle, curve.title);
  draw_frame(svg, curve, scales);

  // From back to front: the raw line, the reference line, then the main line: the smoothed one if there
  // are points enough, else the raw one.
  std::vector<LossPiece> main = raw.pieces;
  std::string smooth_label;
  if (count >= kLeastSmoothed) {
    // At least three points, or nothing is smoothed.
    const size_t window = std::max<size_t>(3, count / kSmoothingWindows);
    draw_pieces(svg, raw.pieces, scales, "raw", 1.5);
    main = smoothed_as_drawn(raw.pieces, window, scales.losses.is_logarithmic());
    smooth_label = fmt::format("smoothed over {} points", window);
  }
  if (curve.reference) {
    const double y = scales.y(curve.reference->value);
    svg.line(kLeft, y, kRight, y, "reference");
    const std::string label = curve.reference->label + " " + loss_text(curve.reference->value);
    svg.text({.x = kRight - 8, .y = y - 8, .classes = "reference-text", .anchor = "end", .text = label});
  }
  draw_pieces(svg, main, scales, "smooth", 4);
  if (!main.empty()) {
    draw_legend(svg, smooth_label);
    const LossPoint end = main.back().back();
    const double x = scales.x(static_cast<double>(end.step));
    svg.circle(x, scales.y(end.loss), 4, "dot");
    svg.text({.x = x + 10, .y = scales.y(end.loss) + 5, .classes = "value", .text = loss_text(end.loss)});
  } else {
    svg.text({.x = (kLeft + kRight) / 2,
              .y = (kTop + kBottom) / 2,
              .classes = "note",
              .anchor = "middle",
              .text = "no points to draw"});
  }
  // The drawing explains the gaps of the curve.
  if (raw.skipped > 0) {
    const std::string note = fmt::format("{} {} left out: the loss was not finite", raw.skipped,
                                         raw.skipped == 1 ? "point" : "points");
    svg.text({.x = kRight, .y = kTop - 14, .classes = "tick", .anchor = "end", .text = note});
  }
  return {svg.take(), raw.skipped};
}

Result<size_t> write_loss_curve(const LossCurve& curve, const std::string& path) {
  const LossDrawing drawing = draw_loss_curve(curve);
  HDT_RETURN_IF_ERROR(write_file_atomically(path, drawing.svg));
  return drawing.skipped;
}

}  // namespace hdt::training
