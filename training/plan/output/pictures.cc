// pictures.cc: the spans of a predicted step as trace events and as rectangles.
#include "training/plan/output/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "training/data/svg_writer.h"

namespace hdt::plan {
namespace {

// A worker does these one after the other; all other spans may overlap.
bool is_computation(SpanKind kind) {
  return kind == SpanKind::kForward || kind == SpanKind::kBackward || kind == SpanKind::kInputGradient ||
         kind == SpanKind::kWeightGradient || kind == SpanKind::kUpdate;
}

// A thread of a trace cannot show spans that overlap. Each span goes to the first lane that is free,
// which needs as few lanes as possible if spans come in the order of their start.
class Lanes {
 public:
  int take(const Span& span) {
    size_t lane = 0;
    while (lane < ends_.size() && ends_[lane] > span.start) ++lane;
    if (lane == ends_.size()) ends_.push_back(0);
    ends_[lane] = span.end;
    return static_cast<int>(lane);
  }

 private:
  std::vector<double> ends_;
};

std::string worker_name(const Plan& plan, training::Position position) {
  const Stage& stage = plan.replicas[position.replica].stages[position.stage];
  return fmt::format("replica {} stage {} ({})", position.replica + 1, position.stage + 1, stage.node);
}

constexpr const char* kStyle =
    "text{font:11px sans-serif;fill:#333}.axis{stroke:#999}.forward{fill:#4e79a7}.backward{fill:#59a14f}"
    ".reduce{fill:#e15759;opacity:.6}.update{fill:#f28e2b}";

const char* style_class(SpanKind kind) {
  if (kind == SpanKind::kForward) return "forward";
  if (kind == SpanKind::kBackward || kind == SpanKind::kInputGradient || kind == SpanKind::kWeightGradient)
    return "backward";
  return kind == SpanKind::kUpdate ? "update" : "reduce";
}

}  // namespace

// A process for each replica, numbered from 1. Thread ids are 1000 x (stage + 1) + lane; lane 0 is
// computation, so a stage's threads stand together in Perfetto's list. The format wants microseconds.
std::string perfetto_trace(const Plan& plan, const Prediction& prediction) {
  constexpr int kThreadsOfStage = 1000;  // lanes a stage may have
  const training::Layout layout = plan.layout();
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", position.replica + 1},
                      {"tid", kThreadsOfStage * (position.stage + 1)},
                      {"args", {{"name", worker_name(plan, position)}}}});
  }
  std::vector<Span> spans = prediction.spans;
  std::ranges::stable_sort(spans, {}, &Span::start);
  std::map<int, Lanes> lanes;
  for (const Span& span : spans) {
    const training::Position position = layout.position_of(span.worker);
    const int lane = is_computation(span.kind) ? 0 : 1 + lanes[span.worker].take(span);
    events.push_back({{"ph", "X"},
                      {"name", fmt::format("{} {}", span_name(span.kind), span.index)},
                      {"cat", span_name(span.kind)},
                      {"pid", position.replica + 1},
                      {"tid", kThreadsOfStage * (position.stage + 1) + lane},
                      {"ts", 1e6 * span.start},
                      {"dur", 1e6 * (span.end - span.start)}});
  }
  return nlohmann::ordered_json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

// Lengths are pixels. The chart is always equally wide; the scale follows from the length of the step.
std::string pipeline_svg(const Plan& plan, const Prediction& prediction) {
  constexpr int kLeft = 190;
  constexpr int kChart = 960;
  constexpr int kRow = 22;
  constexpr int kTop = 24;
  const training::Layout layout = plan.layout();
  const int height = kTop + kRow * layout.world_size() + 30;
  training::SvgWriter svg(kLeft + kChart + 20, height, kStyle,
                          fmt::format("predicted step of {:.4g} s", prediction.step_seconds));
  const double scale = kChart / prediction.step_seconds;
  svg.text({.x = kLeft,
            .y = 14,
            .classes = "",
            .text = "forward blue, backward green, reduction red, update orange"});
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const std::string name = worker_name(plan, layout.position_of(worker));
    svg.text(
        {.x = kLeft - 6, .y = kTop + kRow * (worker + 0.7), .classes = "", .anchor = "end", .text = name});
  }
  for (const Span& span : prediction.spans) {
    if (span.kind == SpanKind::kActivation || span.kind == SpanKind::kGradient) continue;
    // Reductions may run beside computation: a thin bar below it.
    const bool reduction = span.kind == SpanKind::kReduction;
    svg.rectangle(kLeft + scale * span.start, kTop + kRow * span.worker + (reduction ? 15 : 2),
                  scale * (span.end - span.start), reduction ? 5 : 13, style_class(span.kind));
  }
  const double bottom = kTop + kRow * layout.world_size() + 6;
  svg.line(kLeft, bottom, kLeft + kChart, bottom, "axis");
  for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    svg.text({.x = kLeft + kChart * part,
              .y = bottom + 14,
              .classes = "",
              .anchor = "middle",
              .text = fmt::format("{:.4g} s", part * prediction.step_seconds)});
  }
  return svg.take();
}

}  // namespace hdt::plan
