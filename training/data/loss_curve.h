// loss_curve.h: draws a loss curve as a self-contained SVG: no scripts, no fonts, nothing that is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::training {

// The loss of one step.
struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

// A horizontal line to compare with, such as the unigram entropy.
struct ReferenceLine {
  double value = 0;
  std::string label;
};

// What to draw. Texts may hold any bytes; they are escaped.
struct LossCurve {
  std::string title = "Training loss";
  std::string subtitle;  // model, data, layout: what tells this run from another
  std::string x_label = "step";
  std::string y_label = "loss (nats per token)";
  std::vector<LossPoint> points;           // by ascending step
  std::optional<ReferenceLine> reference;  // not drawn if its value is not finite
};

// The drawing as text.
struct LossDrawing {
  std::string svg;
  size_t skipped = 0;  // points that are not finite: left out of the curve, and named in the drawing
};

// Draws. Any points are allowed, also none. Pure.
LossDrawing draw_loss_curve(const LossCurve& curve);
// Draws into a file, which is replaced as a whole, and returns how many points were skipped. kSystem:
// the file cannot be written.
Result<size_t> write_loss_curve(const LossCurve& curve, const std::string& path);

}  // namespace hdt::training
