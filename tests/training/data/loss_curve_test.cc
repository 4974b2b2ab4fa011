#include "training/data/loss_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/training/data/temporary_folder.h"
#include "training/data/chart_axis.h"
#include "training/data/loss_series.h"
#include "training/data/svg_writer.h"

namespace hdt::training {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<LossPoint> falling(int64_t steps) {
  std::vector<LossPoint> points;
  for (int64_t step = 1; step <= steps; ++step) {
    points.push_back({step, 1.5 + 4 * std::exp(-static_cast<double>(step) / 100)});
  }
  return points;
}

// The value of an attribute of a tag; none when the tag has no such attribute.
std::optional<std::string> attribute(const std::string& tag, const std::string& name) {
  const size_t at = tag.find(" " + name + "=\"");
  if (at == std::string::npos) return std::nullopt;
  const size_t start = at + name.size() + 3;
  return tag.substr(start, tag.find('"', start) - start);
}

void expect_coordinates(const std::string& tag) {
  for (const char* name : {"x", "y", "cx", "cy", "x1", "y1", "x2", "y2"}) {
    const auto text = attribute(tag, name);
    if (!text) continue;
    size_t used = 0;
    const double value = std::stod(*text, &used);
    EXPECT_EQ(used, text->size()) << *text;
    EXPECT_TRUE(value >= 0 && value <= 960) << *text;  // false for NaN
  }
  const std::string points = attribute(tag, "points").value_or("");
  EXPECT_EQ(points.find_first_not_of("0123456789., "), std::string::npos) << points.substr(0, 80);
}

// Checks that tags are balanced and that every coordinate is a number inside the page.
void expect_drawing(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos) << "a tag without an end";
    const std::string tag = svg.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << "a tag inside a tag: " << tag;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << "an open quote: " << tag;
    if (tag.front() == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    expect_coordinates(tag);
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

double number_after(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? kNan : std::stod(text.substr(at + part.size()));
}

std::vector<std::string> labels(const ChartAxis& axis) {
  std::vector<std::string> found;
  for (const Tick& tick : axis.ticks()) found.push_back(tick.label);
  return found;
}

TEST(ChartAxis, TicksAreRoundNumbersAroundTheRange) {
  using ::testing::ElementsAre;
  EXPECT_THAT(labels(ChartAxis::linear(1.4, 5.6, 7)), ElementsAre("1", "2", "3", "4", "5", "6"));
  EXPECT_THAT(labels(ChartAxis::linear(0.12, 0.58, 5)),
              ElementsAre("0.1", "0.2", "0.3", "0.4", "0.5", "0.6"));
  EXPECT_THAT(labels(ChartAxis::linear(-3, 11, 4)), ElementsAre("-5", "0", "5", "10", "15"));
  EXPECT_THAT(labels(ChartAxis::linear(0, 90000, 5)), ElementsAre("0", "20k", "40k", "60k", "80k", "100k"));
  EXPECT_THAT(labels(ChartAxis::logarithmic(1.5, 70000)), ElementsAre("1", "10", "100", "1k", "10k", "100k"));
  EXPECT_THAT(labels(ChartAxis::whole_numbers(1, 5, 7)), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(labels(ChartAxis::whole_numbers(1, 600, 7)),
              ElementsAre("100", "200", "300", "400", "500", "600"));
}

TEST(ChartAxis, AnyRangeHasAFewTicks) {
  const double huge = 1e100;
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{5, 5},
                                                                        {0, 0},
                                                                        {-huge, huge},
                                                                        {huge, huge},
                                                                        {1e17, 1e17 + 16},
                                                                        {0, 5e-324},
                                                                        {1, 1 + 1e-15},
                                                                        {-1e-200, 1e-200},
                                                                        {9.2e18, 9.2e18 + 1024}}) {
    for (const ChartAxis& axis : {ChartAxis::linear(low, high, 7), ChartAxis::whole_numbers(low, high, 7)}) {
      EXPECT_LE(axis.ticks().size(), 20u) << low << " " << high;
      EXPECT_GE(axis.position(low), 0);
      EXPECT_LE(axis.position(high), 1);
      EXPECT_LE(axis.position(low), axis.position(high));
    }
    EXPECT_GE(ChartAxis::linear(low, high, 7).ticks().size(), 2u) << low << " " << high;
  }
}

TEST(ChartAxis, PositionsAreProportional) {
  const ChartAxis linear = ChartAxis::linear(0, 10, 5);
  EXPECT_DOUBLE_EQ(linear.position(2.5), 0.25);
  EXPECT_DOUBLE_EQ(linear.position(-3), 0);
  EXPECT_DOUBLE_EQ(linear.position(30), 1);
  const ChartAxis logarithmic = ChartAxis::logarithmic(1, 10000);
  EXPECT_NEAR(logarithmic.position(100), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(logarithmic.position(-1), 0);
}

TEST(LossSeries, PiecesEndWhereAPointIsLeftOut) {
  const LossPieces result = drawable_pieces(
      {{1, 5}, {2, 4}, {3, kNan}, {4, kInfinity}, {5, 3}, {6, -kInfinity}, {7, 2}, {8, 1e101}});
  EXPECT_EQ(result.skipped, 4u);
  ASSERT_EQ(result.pieces.size(), 3u);
  EXPECT_EQ(result.pieces[0].size(), 2u);
  EXPECT_EQ(result.pieces[1][0].step, 5);
  EXPECT_EQ(result.pieces[2][0].step, 7);
}

TEST(LossSeries, SmoothingKeepsLinesAndReducesNoise) {
  LossPiece line;
  LossPiece noise;
  for (int64_t step = 0; step < 400; ++step) {
    line.push_back({step, 10 - 0.02 * static_cast<double>(step)});
    noise.push_back({step, 3.0 + (step % 2 == 0 ? 0.5 : -0.5)});
  }
  const auto smooth = smoothed_pieces({line, noise, {{500, 7}}}, 20);
  for (size_t i = 0; i < line.size(); ++i) EXPECT_NEAR(smooth[0][i].loss, line[i].loss, 1e-9) << i;
  for (size_t i = 0; i < noise.size(); ++i) EXPECT_NEAR(smooth[1][i].loss, 3.0, 0.15) << i;
  for (size_t i = 50; i < 350; ++i) EXPECT_NEAR(smooth[1][i].loss, 3.0, 0.03) << i;
  EXPECT_DOUBLE_EQ(smooth[2][0].loss, 7);
}

TEST(LossSeries, ThinningKeepsTheExtremes) {
  LossPiece piece;
  for (int64_t step = 0; step < 100000; ++step) piece.push_back({step, std::sin(static_cast<double>(step))});
  piece[54321].loss = 99;
  piece[54322].loss = -99;
  const LossPiece thin = thinned(piece, 100);
  EXPECT_LE(thin.size(), 400u);
  EXPECT_EQ(thin.front().step, 0);
  EXPECT_EQ(thin.back().step, 99999);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](auto& a, auto& b) { return a.step < b.step; }));
  const auto has = [&](double loss) {
    return std::any_of(thin.begin(), thin.end(), [&](const LossPoint& point) { return point.loss == loss; });
  };
  EXPECT_TRUE(has(99) && has(-99));
}

TEST(SvgText, IsEscaped) {
  EXPECT_EQ(escaped("a<b> & \"c\"\n"), "a&lt;b&gt; &amp; &quot;c&quot; ");
  EXPECT_EQ(escaped("Stück × 3 – 𝄞"), "Stück × 3 – 𝄞");
  EXPECT_EQ(escaped("bad \xff\xc3"), "bad ??");
  EXPECT_EQ(escaped("overlong \xc0\xaf"), "overlong ??");
}

TEST(LossCurve, DrawsBothLinesAxesReferenceAndLegend) {
  LossCurve curve;
  curve.title = "R&D <1>";
  curve.subtitle = "2 nodes";
  curve.points = falling(600);
  curve.reference = ReferenceLine{3.02, "unigram entropy"};
  const LossDrawing drawing = draw_loss_curve(curve);
  expect_drawing(drawing.svg);
  EXPECT_EQ(drawing.skipped, 0u);
  EXPECT_EQ(count(drawing.svg, "<polyline"), 2u);
  EXPECT_THAT(drawing.svg, HasSubstr("R&amp;D &lt;1&gt;"));
  EXPECT_THAT(drawing.svg, HasSubstr(">2 nodes<"));
  EXPECT_THAT(drawing.svg, HasSubstr(">unigram entropy 3.020<"));
  EXPECT_THAT(drawing.svg, HasSubstr(">smoothed over 15 points<"));
  EXPECT_THAT(drawing.svg, HasSubstr(">loss (nats per token)<"));
  EXPECT_THAT(drawing.svg, HasSubstr(">step<"));
  EXPECT_THAT(drawing.svg, Not(HasSubstr("left out")));
  // The reference line is drawn between the grid lines of 3 and 4, near 3. Axis from 1 to 6, y from 478
  // to 96.
  const size_t reference_end = drawing.svg.find(" class=\"reference\"/>");
  ASSERT_NE(reference_end, std::string::npos);
  const size_t reference_start = drawing.svg.rfind('<', reference_end);
  const std::string reference = drawing.svg.substr(reference_start, reference_end - reference_start);
  EXPECT_EQ(attribute(reference, "y1"), attribute(reference, "y2"));
  EXPECT_NEAR(std::stod(attribute(reference, "y1").value_or("")), 478 - (3.02 - 1) / 5 * (478 - 96), 0.06);
}

TEST(LossCurve, OnePointNoPointFewPoints) {
  LossCurve curve;
  curve.points = {{1, 5.545}};
  const LossDrawing one = draw_loss_curve(curve);
  expect_drawing(one.svg);
  EXPECT_EQ(count(one.svg, "<polyline"), 0u);
  EXPECT_GE(count(one.svg, "<circle"), 1u);
  EXPECT_THAT(one.svg, HasSubstr(">5.545<"));

  curve.points.clear();
  const LossDrawing none = draw_loss_curve(curve);
  expect_drawing(none.svg);
  EXPECT_THAT(none.svg, HasSubstr("no points to draw"));

  curve.points = {{1, 3}, {2, 2}};
  const LossDrawing two = draw_loss_curve(curve);
  expect_drawing(two.svg);
  EXPECT_EQ(count(two.svg, "<polyline"), 1u);
  EXPECT_THAT(two.svg, Not(HasSubstr("smoothed")));
}

TEST(LossCurve, SkipsAndSaysSo) {
  LossCurve curve;
  curve.points = falling(40);
  curve.points[10].loss = kNan;
  curve.reference = ReferenceLine{kNan, "nothing"};
  const LossDrawing one = draw_loss_curve(curve);
  expect_drawing(one.svg);
  EXPECT_EQ(one.skipped, 1u);
  EXPECT_THAT(one.svg, HasSubstr("1 point left out"));
  EXPECT_THAT(one.svg, Not(HasSubstr(">nothing")));
  EXPECT_EQ(count(one.svg, "<polyline"), 4u);  // two pieces, raw and smoothed
  curve.points[11].loss = -kInfinity;
  EXPECT_THAT(draw_loss_curve(curve).svg, HasSubstr("2 points left out"));
  for (LossPoint& point : curve.points) point.loss = kInfinity;
  const LossDrawing all = draw_loss_curve(curve);
  expect_drawing(all.svg);
  EXPECT_EQ(all.skipped, 40u);
  EXPECT_THAT(all.svg, HasSubstr("no points to draw"));
}

TEST(LossCurve, LargeValuesAndLongRuns) {
  LossCurve curve;
  curve.points = falling(300);
  curve.points[50].loss = 1e6;
  const LossDrawing spike = draw_loss_curve(curve);
  expect_drawing(spike.svg);
  EXPECT_THAT(spike.svg, HasSubstr("logarithmic"));
  EXPECT_THAT(spike.svg, HasSubstr(">1M<"));

  curve.points = {{1, -1e99}, {2, 1e99}, {std::numeric_limits<int64_t>::max(), 0}};
  expect_drawing(draw_loss_curve(curve).svg);

  curve.points = falling(200000);
  const LossDrawing long_run = draw_loss_curve(curve);
  EXPECT_LT(long_run.svg.size(), 300000u);
  EXPECT_NEAR(number_after(long_run.svg, "class=\"value\" text-anchor=\"start\">"), 1.5, 0.001);
}

TEST(LossCurve, IsWrittenWhole) {
  const TemporaryFolder folder;
  LossCurve curve;
  curve.points = falling(20);
  curve.points[3].loss = kNan;
  const auto written = write_loss_curve(curve, folder.file("loss.svg"));
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  EXPECT_EQ(written.value(), 1u);
  EXPECT_EQ(read_all(folder.file("loss.svg")), draw_loss_curve(curve).svg);
  EXPECT_THAT(folder.names(), testing::ElementsAre("loss.svg"));
  EXPECT_FALSE(write_loss_curve(curve, folder.file("none/loss.svg")).is_ok());
}

}  // namespace
}  // namespace hdt::training
