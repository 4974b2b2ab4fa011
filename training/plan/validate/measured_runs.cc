// measured_runs.cc: reads the file of own runs, then the plans that it names.
#include "training/plan/validate/measured_runs.h"

#include <fmt/format.h>

#include <filesystem>

#include "training/plan/describe/micro_batch_sizes.h"
#include "training/plan/describe/toml_fields.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {
namespace {

// One [[run]] table. The plan's path is as it stands in the file.
struct Run {
  std::string plan;
  Measurement measured;
};

struct RunFile {
  std::string name;
  std::vector<Run> runs;
};

}  // namespace

void read_measured(TomlFields& fields, Measurement& measured) {
  measured.step_seconds = fields.positive("step_seconds");
  measured.peak_memory_bytes = fields.optional_size("peak_memory_bytes").value_or(0);
  measured.left_out = fields.text_or("left_out", "");
}

Status add_row(const std::string& where, Measurement row, PublishedSet& set) {
  for (std::string& warning : derive_micro_batch_sizes(set.profile, set.cluster, row.plan))
    set.warnings.push_back(std::move(warning));
  const Status status = check_plan(row.plan, set.cluster, set.model, set.profile);
  if (!status.is_ok()) return {status.code(), fmt::format("{}: {}", where, status.message())};
  set.rows.push_back(std::move(row));
  return Status::ok();
}

Status read_measured_runs(const std::string& path, PublishedSet& set) {
  auto file = read_toml<RunFile>(path, [](TomlFields& fields) {
    RunFile read;
    read.name = fields.text("name");
    // The name becomes the name of the calibration's file.
    if (read.name.find('/') != std::string::npos) fields.fail("name", "expected a name without '/'");
    for (TomlFields& entry : fields.tables("run")) {
      Run run;
      run.plan = entry.text("plan");
      run.measured.name = entry.text_or("name", run.plan.c_str());
      read_measured(entry, run.measured);
      entry.end();
      read.runs.push_back(std::move(run));
    }
    return read;
  });
  if (!file.is_ok()) return file.status();
  set.name = file.value().name;
  for (const Run& run : file.value().runs) {
    const std::string plan_path = std::filesystem::path(path).parent_path() / run.plan;
    auto plan = read_plan(plan_path);
    if (!plan.is_ok()) return plan.status();
    Measurement row = run.measured;
    row.plan = plan.take();
    HDT_RETURN_IF_ERROR(add_row(plan_path, std::move(row), set));
  }
  return Status::ok();
}

std::string measured_runs_toml(const PublishedSet& set, const std::vector<std::string>& plans) {
  std::string out = fmt::format("name = {}\n", in_quotes(set.name));
  for (size_t i = 0; i < set.rows.size(); ++i) {
    const Measurement& row = set.rows[i];
    out += fmt::format("\n[[run]]\nname = {}\nplan = {}\nstep_seconds = {}\n", in_quotes(row.name),
                       in_quotes(plans[i]), row.step_seconds);
    if (row.peak_memory_bytes > 0) out += fmt::format("peak_memory_bytes = {}\n", row.peak_memory_bytes);
    if (!row.left_out.empty()) out += fmt::format("left_out = {}\n", in_quotes(row.left_out));
  }
  return out;
}

}  // namespace hdt::plan
