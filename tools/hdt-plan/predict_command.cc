// predict_command.cc: `hdt-plan predict`: prints the step and its parts for each worker, as a table or
// as JSON, and writes pictures of it.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/hdt-plan/commands.h"
#include "tools/hdt-plan/output_file.h"
#include "training/data/plot.h"
#include "training/plan/output/pictures.h"

namespace hdt::tools {
namespace {

// The interval exists only with a calibration that has residuals.
void print_interval(const plan::StepInterval& interval) {
  const std::string holds =
      interval.coverage > 0
          ? fmt::format("{:.0f} % of plans like the {} measured ones", 100 * interval.coverage, interval.rows)
          : fmt::format(
                "the largest error of {} measured plans; they are of another model or other devices, so "
                "no share of plans can be promised",
                interval.rows);
  fmt::print("interval    {:.6g} to {:.6g} s, {}\n", interval.low, interval.high, holds);
}

// The parts of a worker's step are printed in percent of the step, and sum to 100 %.
void print_table(const plan::Plan& plan, const plan::Prediction& prediction,
                 const std::optional<plan::StepInterval>& interval) {
  const training::Layout layout = plan.layout();
  const double step = prediction.step_seconds;
  fmt::print("step        {:.6g} s\n", step);
  if (interval) print_interval(*interval);
  fmt::print("throughput  {:.6g} samples/s\n\n", static_cast<double>(plan.global_batch_size()) / step);
  fmt::print("{:>7} {:>5} {:<16} {:>8} {:>11} {:>11} {:>8} {:>10} {:>11}\n", "replica", "stage", "node",
             "compute", "exposed pp", "exposed dp", "bubble", "optimizer", "memory GiB");
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    const plan::WorkerTime& time = prediction.workers[worker];
    const auto percent = [&](double seconds) { return fmt::format("{:.1f} %", 100 * seconds / step); };
    fmt::print("{:>7} {:>5} {:<16} {:>8} {:>11} {:>11} {:>8} {:>10} {:>11.2f}\n", position.replica + 1,
               position.stage + 1, plan.replicas[position.replica].stages[position.stage].node,
               percent(time.compute), percent(time.exposed_pipeline), percent(time.exposed_reduction),
               percent(time.bubble), percent(time.optimizer),
               prediction.peak_memory_bytes[worker] / plan::kGibibyte);
  }
}

// Times are seconds; replicas and stages are numbered from 0, unlike in the table.
void print_json(const plan::Plan& plan, const plan::Prediction& prediction,
                const std::optional<plan::StepInterval>& interval) {
  const training::Layout layout = plan.layout();
  nlohmann::ordered_json json = {{"step_seconds", prediction.step_seconds},
                                 {"samples", plan.global_batch_size()}};
  if (interval) {
    json["interval"] = {{"low_seconds", interval->low},
                        {"high_seconds", interval->high},
                        {"coverage", interval->coverage > 0 ? nlohmann::ordered_json(interval->coverage)
                                                            : nlohmann::ordered_json(nullptr)},
                        {"rows", interval->rows}};
  }
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    const plan::WorkerTime& time = prediction.workers[worker];
    json["workers"].push_back({{"replica", position.replica},
                               {"stage", position.stage},
                               {"compute", time.compute},
                               {"exposed_pipeline", time.exposed_pipeline},
                               {"exposed_reduction", time.exposed_reduction},
                               {"bubble", time.bubble},
                               {"optimizer", time.optimizer},
                               {"peak_memory_bytes", prediction.peak_memory_bytes[worker]}});
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

Status predict_command(const PredictOptions& options) {
  // The files are tried before the step is played.
  HDT_RETURN_IF_ERROR(check_output("--trace", options.trace));
  HDT_RETURN_IF_ERROR(check_output("--svg", options.svg));
  const auto played = play_plan(options.inputs, options.plan);
  if (!played.is_ok()) return played.status();
  const plan::Plan& plan = played.value().plan;
  const plan::Prediction& prediction = played.value().prediction;
  HDT_RETURN_IF_ERROR(write_output("--trace", options.trace, plan::perfetto_trace(plan, prediction)));
  if (!options.svg.empty()) {
    const auto drawn = training::write_plot(options.svg, plan::pipeline_script(plan, prediction));
    if (!drawn.is_ok()) return Status(drawn.status().code(), "--svg: " + drawn.status().message());
    if (!drawn.value().empty()) fmt::print(stderr, "hdt-plan: warning: {}\n", drawn.value());
  }
  // By the residuals of the calibration that the prediction was made with.
  const auto interval = plan::step_interval(played.value().inputs.calibration, prediction.step_seconds);
  if (options.json)
    print_json(plan, prediction, interval);
  else
    print_table(plan, prediction, interval);
  return Status::ok();
}

}  // namespace hdt::tools
