// loss_curve.h: the loss of each step as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::training {

// The loss of one step.
struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

// A curve to draw. Texts may hold any UTF-8.
struct LossCurve {
  std::string subtitle;           // model, data, layout: what tells this run from another
  std::vector<LossPoint> points;  // by ascending step
  double unigram_entropy = 0;     // a line to compare with; not drawn if it is not finite
};

// A script for gnuplot, with all points that are finite. The title counts the others.
std::string loss_curve_script(const LossCurve& curve);
// Writes PATH.gnuplot and draws it into `path`: see write_plot().
Result<std::string> write_loss_curve(const LossCurve& curve, const std::string& path);

}  // namespace hdt::training
