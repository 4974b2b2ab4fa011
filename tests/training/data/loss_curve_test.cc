#include "training/data/loss_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "tests/training/data/temporary_folder.h"
#include "training/data/command.h"
#include "training/data/plot.h"

namespace hdt::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

// The lines of the script's data: "" where the curve has a gap.
std::vector<std::string> data_lines(const std::string& script) {
  std::istringstream text(script);
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(text, line) && line != "$loss << END_OF_LOSS") {
  }
  while (std::getline(text, line) && line != "END_OF_LOSS") lines.push_back(line);
  return lines;
}

TEST(PlotString, IsNotInterpreted) {
  EXPECT_EQ(plot_string("it's `date` @x \\ $y \"z\"\n"), "'it''s `date` @x \\ $y \"z\" '");
}

TEST(LossCurveScript, HoldsAllPointsInFullPrecision) {
  LossCurve curve;
  curve.points = {{1, 5.545177444479562}, {2, 0.1}, {std::numeric_limits<int64_t>::max(), -3}};
  EXPECT_THAT(data_lines(loss_curve_script(curve)),
              ElementsAre("1 5.545177444479562", "2 0.1", "9223372036854775807 -3"));
}

TEST(LossCurveScript, LeavesGapsAndCountsThem) {
  LossCurve curve;
  curve.points = {{1, 5}, {2, kNan}, {3, 4}};
  EXPECT_THAT(data_lines(loss_curve_script(curve)), ElementsAre("1 5", "", "3 4"));
  EXPECT_THAT(loss_curve_script(curve), HasSubstr("(1 point left out"));
  curve.points.push_back({4, -kInfinity});
  curve.points.push_back({5, 1e101});
  EXPECT_THAT(loss_curve_script(curve), HasSubstr("(3 points left out"));
}

// Runs scripts through gnuplot; skipped where it is not installed.
class DrawnLossCurve : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run_command({"gnuplot", "--version"}).is_ok()) GTEST_SKIP() << "gnuplot is not installed";
  }
  std::string drawn(const LossCurve& curve) const {
    const auto written = write_loss_curve(curve, folder_.file("loss.svg"));
    EXPECT_TRUE(written.is_ok()) << written.status().to_string();
    EXPECT_EQ(written.value(), "");
    EXPECT_EQ(read_all(folder_.file("loss.svg.gnuplot")), loss_curve_script(curve));
    EXPECT_THAT(folder_.names(), ElementsAre("loss.svg", "loss.svg.gnuplot"));
    std::string svg = read_all(folder_.file("loss.svg"));
    EXPECT_THAT(svg, AllOf(HasSubstr("<svg"), HasSubstr("</svg>")));
    return svg;
  }

  const TemporaryFolder folder_;
};

TEST_F(DrawnLossCurve, HasTitleAxesLegendAndLastValue) {
  LossCurve curve;
  curve.subtitle = "R&D <1> of `date`, it's a_1";
  curve.points = falling(600);
  curve.unigram_entropy = 3.02;
  EXPECT_THAT(drawn(curve),
              AllOf(HasSubstr(">Training loss: R&amp;D &lt;1> of `date`, it's a_1<"), HasSubstr(">step<"),
                    HasSubstr(">loss (nats per token)<"), HasSubstr(">each step<"), HasSubstr(">smoothed<"),
                    HasSubstr(">unigram entropy 3.020<"), HasSubstr(">1.51<"), Not(HasSubstr("left out"))));
}

TEST_F(DrawnLossCurve, FewPointsAreNotSmoothedAndNoneAreNamed) {
  LossCurve curve;
  curve.unigram_entropy = kNan;
  for (const size_t points : {1, 2, 9}) {
    curve.points = falling(points);
    EXPECT_THAT(drawn(curve), AllOf(HasSubstr(">each step<"), Not(HasSubstr("smoothed")))) << points;
  }
  curve.points = falling(10);
  EXPECT_THAT(drawn(curve), HasSubstr(">smoothed<"));
  curve.points.clear();
  EXPECT_THAT(drawn(curve), HasSubstr("no points to draw"));
  curve.points = {{1, kInfinity}, {2, kNan}};
  EXPECT_THAT(drawn(curve), AllOf(HasSubstr("no points to draw"), HasSubstr("2 points left out")));
}

TEST_F(DrawnLossCurve, AWideRangeIsLogarithmicAndAHugeOneIsDrawn) {
  LossCurve curve;
  curve.points = falling(300);
  EXPECT_THAT(drawn(curve), Not(HasSubstr("logarithmic")));
  curve.points[50].loss = 1e6;
  curve.points[99].loss = kNan;
  EXPECT_THAT(drawn(curve), AllOf(HasSubstr("logarithmic"), HasSubstr("1 point left out")));
  curve.points = {{1, -1e99}, {2, 1e99}, {std::numeric_limits<int64_t>::max(), 0}};
  drawn(curve);
}

TEST_F(DrawnLossCurve, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(write_loss_curve({}, folder_.file("none/loss.svg")).status().code(), Code::kSystem);
}

TEST_F(DrawnLossCurve, AScriptThatGnuplotRefusesIsAnError) {
  const auto written = write_plot(folder_.file("x.svg"), "no command\n");
  ASSERT_FALSE(written.is_ok());
  EXPECT_THAT(written.status().message(),
              HasSubstr("gnuplot ended with exit code 1 on " + folder_.file("x.svg.gnuplot")));
  EXPECT_THAT(folder_.names(), ElementsAre("x.svg.gnuplot"));
}

TEST(LossCurveWithoutGnuplot, TheDataIsWrittenAndTheUserToldHowToDrawIt) {
  const TemporaryFolder folder;
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(::setenv("PATH", folder.path().c_str(), 1), 0);
  LossCurve curve;
  curve.points = falling(20);
  const auto written = write_loss_curve(curve, folder.file("loss.svg"));
  ASSERT_EQ(::setenv("PATH", path.c_str(), 1), 0);
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  EXPECT_THAT(
      written.value(),
      AllOf(HasSubstr("loss.svg is not drawn: cannot run 'gnuplot': No such file"), HasSubstr("gnuplot-nox"),
            HasSubstr("gnuplot " + folder.file("loss.svg.gnuplot") + " > " + folder.file("loss.svg"))));
  EXPECT_THAT(folder.names(), ElementsAre("loss.svg.gnuplot"));
  EXPECT_EQ(read_all(folder.file("loss.svg.gnuplot")), loss_curve_script(curve));
}

}  // namespace
}  // namespace hdt::training
