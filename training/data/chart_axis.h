// chart_axis.h: the scale of a chart's axis: its range, its ticks with their labels, and where a value
// lies on it.
#pragma once

#include <string>
#include <vector>

namespace hdt::training {

// A mark on the axis.
struct Tick {
  double value = 0;
  std::string label;
};

// A value type. Every range has low() < high(), also if all values to be shown are the same.
class ChartAxis {
 public:
  // About `wanted` ticks at 1, 2 or 5 times a power of ten, with the range widened to the outer ticks.
  static ChartAxis linear(double low, double high, int wanted);
  // Ticks at powers of ten, at most nine of them. low must be above 0.
  static ChartAxis logarithmic(double low, double high);
  // The range as given, with ticks inside it at whole numbers.
  static ChartAxis whole_numbers(double low, double high, int wanted);

  // 0 at the low end, 1 at the high end; a value outside of the range is put on the nearer end.
  double position(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }
  double low() const { return low_; }
  double high() const { return high_; }
  bool is_logarithmic() const { return logarithmic_; }

 private:
  double low_ = 0;
  double high_ = 1;
  bool logarithmic_ = false;
  std::vector<Tick> ticks_;
};

}  // namespace hdt::training
