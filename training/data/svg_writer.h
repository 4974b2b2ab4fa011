// svg_writer.h: the few SVG elements that the charts use, with their text escaped.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hdt::training {

struct SvgText {
  double x = 0;
  double y = 0;
  std::string_view classes;  // of the style sheet
  std::string_view anchor = "start";
  std::string_view text;
  std::string_view transform = "";
};

class SvgWriter {
 public:
  // `style` is a CSS style sheet; `title` is read out by screen readers.
  SvgWriter(int width, int height, std::string_view style, std::string_view title);

  void rectangle(double x, double y, double width, double height, std::string_view classes);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view classes);
  void circle(double x, double y, double radius, std::string_view classes);
  void text(const SvgText& text);
  // Closes the document.
  std::string take();

 private:
  std::string out_;
};

// For XML text: markup and control characters replaced; where `text` is no UTF-8, its other bytes become '?'.
std::string escaped(std::string_view text);

}  // namespace hdt::training
