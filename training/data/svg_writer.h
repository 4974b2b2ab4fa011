// svg_writer.h: the few SVG elements that the charts use. Texts are escaped; classes, anchors and
// transforms are the program's own and are not.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hdt::training {

// A text element. x, y: the start, middle or end of its base line, by `anchor`.
struct SvgText {
  double x = 0;
  double y = 0;
  std::string_view classes;  // of the style sheet
  std::string_view anchor = "start";
  std::string_view text;
  std::string_view transform = "";
};

// A document that grows element by element. Coordinates and sizes are in pixels; y counts downwards.
class SvgWriter {
 public:
  // `style` is a CSS style sheet. `title` is what screen readers read out.
  SvgWriter(int width, int height, std::string_view style, std::string_view title);

  void rectangle(double x, double y, double width, double height, std::string_view classes);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view classes);
  void circle(double x, double y, double radius, std::string_view classes);
  void text(const SvgText& text);
  // Closes the document and moves it out; to be called once.
  std::string take();

 private:
  std::string out_;
};

// Makes any bytes fit for XML text: markup is replaced, control characters become blanks, and if `text`
// is not UTF-8, all bytes beyond ASCII become '?'.
std::string escaped(std::string_view text);

}  // namespace hdt::training
