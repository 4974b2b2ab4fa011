// pictures.cc: the spans of a predicted step as trace events and as a script of rectangles.
#include "training/plan/output/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "training/data/plot.h"

namespace hdt::plan {
namespace {

// A worker does these one after the other; all other spans may overlap.
bool is_computation(SpanKind kind) {
  return kind == SpanKind::kForward || kind == SpanKind::kBackward || kind == SpanKind::kInputGradient ||
         kind == SpanKind::kWeightGradient || kind == SpanKind::kUpdate;
}

// A reduction of gradients, or a gather of parameters.
bool is_of_owners(SpanKind kind) { return kind == SpanKind::kReduction || kind == SpanKind::kGather; }

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

// "forward 3", or "forward 3 of chunk 2" where stages have several; chunks are numbered from 1, as stages
// are.
std::string span_text(const Plan& plan, const training::Position& position, const Span& span) {
  const std::string text = fmt::format("{} {}", span_name(span.kind), span.index);
  const bool of_chunk = !is_of_owners(span.kind) && span.kind != SpanKind::kUpdate;
  return of_chunk && plan.replicas[position.replica].chunks() > 1
             ? fmt::format("{} of chunk {}", text, span.chunk + 1)
             : text;
}

std::string worker_name(const Plan& plan, training::Position position) {
  const Stage& stage = plan.replicas[position.replica].stages[position.stage];
  return fmt::format("replica {} stage {} ({})", position.replica + 1, position.stage + 1, stage.node);
}

// The picture has four colours. "" for messages, which are not drawn.
const char* colour_name(SpanKind kind) {
  if (kind == SpanKind::kActivation || kind == SpanKind::kGradient) return "";
  if (kind == SpanKind::kForward) return "forward";
  if (is_of_owners(kind)) return "reduction";
  return kind == SpanKind::kUpdate ? "update" : "backward";
}

constexpr const char* kPlot = R"(set xlabel 'seconds'
set border 1
set xtics nomirror
set ytics nomirror scale 0
set key above
set style fill solid noborder
kinds = 'forward backward reduction update'
colours = '#4e79a7 #59a14f #e15759 #f28e2b'
plot for [i=1:4] $spans using (strcol(1) eq word(kinds, i) ? $2 : NaN):4:2:3:5:6 \
  with boxxyerror lc rgb word(colours, i) title word(kinds, i)
)";

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
                      {"name", span_text(plan, position, span)},
                      {"cat", span_name(span.kind)},
                      {"pid", position.replica + 1},
                      {"tid", kThreadsOfStage * (position.stage + 1) + lane},
                      {"ts", 1e6 * span.start},
                      {"dur", 1e6 * (span.end - span.start)}});
  }
  return nlohmann::ordered_json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

// Row n of the y axis is worker n, from the top. Boxes of a later chunk are lower.
std::string pipeline_script(const Plan& plan, const Prediction& prediction) {
  const training::Layout layout = plan.layout();
  const int workers = layout.world_size();
  const bool has_chunks =
      std::ranges::any_of(plan.replicas, [](const Replica& replica) { return replica.chunks() > 1; });
  std::string script =
      training::plot_head(1170, 110 + 22 * workers,
                          fmt::format("predicted step of {:.4g} s{}", prediction.step_seconds,
                                      has_chunks ? " (lower boxes: later chunks of the model)" : ""));
  const auto out = std::back_inserter(script);
  fmt::format_to(out, "set xrange [0:{}]\nset yrange [{}.5:-0.5]\nset ytics ()\n", prediction.step_seconds,
                 workers - 1);
  for (int worker = 0; worker < workers; ++worker) {
    const std::string name = worker_name(plan, layout.position_of(worker));
    fmt::format_to(out, "set ytics add ({} {})\n", training::plot_string(name), worker);
  }
  script += "$spans << END_OF_SPANS\n# kind, start and end in seconds, row, upper and lower edge\n";
  for (const Span& span : prediction.spans) {
    const std::string_view colour = colour_name(span.kind);
    if (colour.empty()) continue;
    // Reductions and gathers may run beside computation: a thin bar below it.
    const bool reduction = is_of_owners(span.kind);
    const Replica& replica = plan.replicas[layout.position_of(span.worker).replica];
    const double lower = 0.4 * span.chunk / replica.chunks();
    fmt::format_to(out, "{} {} {} {} {:.2f} {:.2f}\n", colour, span.start, span.end, span.worker,
                   span.worker + (reduction ? 0.25 : -0.35 + lower), span.worker + (reduction ? 0.45 : 0.2));
  }
  return script + "END_OF_SPANS\n" + kPlot;
}

}  // namespace hdt::plan
