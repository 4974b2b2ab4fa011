// chart_axis.cc: ranges and ticks. A tick is a whole multiple of the step, computed as number * step, so
// that rounding errors do not add up along the axis. Comparisons allow a part in 10^9, as quotients of
// doubles miss whole numbers by a little.
#include "training/data/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hdt::training {
namespace {

// The smallest of 1, 2, 5 times a power of ten that is not below `raw`.
double nice_step(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// A label with as many decimals as the step between ticks needs. Large numbers are short: 20k, 1.5M, 2e+12.
std::string tick_label(double value, double step) {
  const double size = std::abs(value);
  if (size < step * 1e-6) return "0";
  if (size >= 1e12 || size < 1e-4) return fmt::format("{:.3g}", value);
  for (const auto& [unit, suffix] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (size >= unit && (unit > 1e3 || size >= 1e4 || step >= 1e3))
      return fmt::format("{:.5g}{}", value / unit, suffix);
  }
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, decimals);
}

// True for a range that is too narrow for ticks that differ in double precision.
bool is_one_value(double low, double high, double relative) {
  return high - low <= std::max({std::abs(low), std::abs(high), 1e-90}) * relative;
}

}  // namespace

ChartAxis ChartAxis::linear(double low, double high, int wanted) {
  // Room on both sides, so that a constant curve is drawn in the middle.
  if (is_one_value(low, high, 1e-9)) {
    const double room = std::max(0.5, std::abs(low) * 0.1);
    low -= room;
    high += room;
  }
  // The ticks are the numbers first .. last, in steps; the outer ones lie at or beyond the values.
  const double step = nice_step((high - low) / wanted);
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  ChartAxis axis;
  axis.low_ = first * step;
  axis.high_ = last * step;
  for (double number = first; number <= last; ++number) {
    axis.ticks_.push_back({number * step, tick_label(number * step, step)});
  }
  return axis;
}

ChartAxis ChartAxis::logarithmic(double low, double high) {
  ChartAxis axis;
  axis.logarithmic_ = true;
  // In decades; the range has at least one.
  const double first = std::floor(std::log10(low) + 1e-9);
  const double last = std::max(std::ceil(std::log10(high) - 1e-9), first + 1);
  axis.low_ = std::pow(10.0, first);
  axis.high_ = std::pow(10.0, last);
  const double stride = std::ceil((last - first) / 8);  // decades from tick to tick
  for (double decade = first; decade <= last; decade += stride) {
    const double value = std::pow(10.0, decade);
    axis.ticks_.push_back({value, tick_label(value, value)});
  }
  return axis;
}

ChartAxis ChartAxis::whole_numbers(double low, double high, int wanted) {
  ChartAxis axis;
  if (is_one_value(low, high, 1e-12)) {
    const double room = std::max(1.0, std::abs(low) * 1e-6);
    low -= room;
    high += room;
  }
  axis.low_ = low;
  axis.high_ = high;
  // Steps below 1 would put several ticks on one whole number.
  const double step = std::max(1.0, nice_step((high - low) / wanted));
  for (double number = std::ceil(low / step - 1e-9); number <= std::floor(high / step + 1e-9); ++number) {
    axis.ticks_.push_back({number * step, tick_label(number * step, step)});
  }
  return axis;
}

// The logarithm of a value at or below 0 does not exist, so values are raised to the low end first.
double ChartAxis::position(double value) const {
  const double share = logarithmic_ ? (std::log10(std::max(value, low_)) - std::log10(low_)) /
                                          (std::log10(high_) - std::log10(low_))
                                    : (value - low_) / (high_ - low_);
  return std::clamp(share, 0.0, 1.0);
}

}  // namespace hdt::training
