// chart_axis.h: the scale of a chart's axis: its range, its ticks with their labels, where a value lies on
// it.
#pragma once

#include <string>
#include <vector>

namespace hdt::training {

struct Tick {
  double value = 0;
  std::string label;
};

class ChartAxis {
 public:
  // Ticks at 1, 2 or 5 times a power of ten, about `wanted` of them, and the range widened to the outer
  // ticks.
  static ChartAxis linear(double low, double high, int wanted);
  // Ticks at the powers of ten. low > 0.
  static ChartAxis logarithmic(double low, double high);
  // The range as given, ticks inside it at whole numbers.
  static ChartAxis whole_numbers(double low, double high, int wanted);

  // 0 at the low end, 1 at the high end; what lies outside is put on the nearer end.
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
