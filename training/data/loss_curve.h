// loss_curve.h: draws a loss curve as a self-contained SVG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::training {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

struct ReferenceLine {
  double value = 0;
  std::string label;
};

struct LossCurve {
  std::string title = "Training loss";
  std::string subtitle;  // model, data, layout: whatever tells this run from another
  std::string x_label = "step";
  std::string y_label = "loss (nats per token)";
  std::vector<LossPoint> points;           // by ascending step
  std::optional<ReferenceLine> reference;  // not drawn when its value is not finite
};

struct LossDrawing {
  std::string svg;
  size_t skipped = 0;  // points that are not finite: left out of the curve, and named in the drawing
};

LossDrawing draw_loss_curve(const LossCurve& curve);
// Draws into a file (replaced whole); says how many points were skipped.
Result<size_t> write_loss_curve(const LossCurve& curve, const std::string& path);

}  // namespace hdt::training
