// svg_writer.cc: each function appends one element. Coordinates are written with one decimal, which
// keeps files of long curves small.
#include "training/data/svg_writer.h"

#include <fmt/format.h>

#include <iterator>

namespace hdt::training {

std::string escaped(std::string_view text) {
  // Two passes: whether the text is UTF-8, then each character.
  bool is_utf8 = true;
  for (size_t at = 0; at < text.size() && is_utf8;) {
    const auto lead = static_cast<unsigned char>(text[at]);
    // Lead bytes of 2, 3 and 4 byte sequences; 0xc0, 0xc1 and 0xf5 and above never occur.
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    is_utf8 = length > 0 && at + length <= text.size();
    for (size_t i = 1; is_utf8 && i < length; ++i) {
      is_utf8 = (static_cast<unsigned char>(text[at + i]) & 0xc0) == 0x80;
    }
    at += length;
  }
  // Quotes are escaped as well, so a text may also stand in an attribute.
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += ' ';
    } else {
      out += byte >= 0x80 && !is_utf8 ? '?' : c;
    }
  }
  return out;
}

SvgWriter::SvgWriter(int width, int height, std::string_view style, std::string_view title) {
  fmt::format_to(
      std::back_inserter(out_),
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "role=\"img\">\n<title>{2}</title>\n<style>\n{3}</style>\n",
      width, height, escaped(title), style);
}

void SvgWriter::rectangle(double x, double y, double width, double height, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>\n", x, y,
                 width, height, classes);
}

void SvgWriter::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
                 y2, classes);
}

// All points in one attribute, which is the shortest form.
void SvgWriter::polyline(const std::vector<std::pair<double, double>>& points, std::string_view classes) {
  out_ += "<polyline points=\"";
  for (const auto& [x, y] : points) fmt::format_to(std::back_inserter(out_), "{:.1f},{:.1f} ", x, y);
  fmt::format_to(std::back_inserter(out_), "\" class=\"{}\"/>\n", classes);
}

void SvgWriter::circle(double x, double y, double radius, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\"/>\n", x, y, radius, classes);
}

void SvgWriter::text(const SvgText& text) {
  const std::string transform =
      text.transform.empty() ? "" : fmt::format(" transform=\"{}\"", text.transform);
  fmt::format_to(std::back_inserter(out_),
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", text.x,
                 text.y, text.classes, text.anchor, transform, escaped(text.text));
}

std::string SvgWriter::take() {
  out_ += "</svg>\n";
  return std::move(out_);
}

}  // namespace hdt::training
