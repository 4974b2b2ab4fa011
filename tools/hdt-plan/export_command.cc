// export_command.cc: `hdt-plan export`: prints one of three forms of a plan (training/plan/output). The
// warnings of the Megatron form go to standard error, so that standard output is only flags.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "tools/hdt-plan/commands.h"
#include "training/plan/convert/megatron_form.h"
#include "training/plan/describe/group_classes.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/output/class_sections.h"
#include "training/plan/output/plan_export.h"

namespace hdt::tools {

Status export_command(const ExportOptions& options) {
  const auto plan = plan::read_plan(options.plan);
  if (!plan.is_ok()) return plan.status();
  const auto cluster = plan::read_cluster(options.cluster);
  if (!cluster.is_ok()) return cluster.status();
  // Check what the chosen form needs. The engine's abilities matter only if hdt-train is to run the
  // plan.
  Status status = plan::check_nodes(plan.value(), cluster.value());
  if (status.is_ok() && options.classes && plan.value().classes.empty())
    status = {Code::kConfig, "class: none given; search gives them where the cluster has [[nic]] tables"};
  if (status.is_ok() && !options.megatron && !options.classes) status = plan::check_engine_runs(plan.value());
  if (!status.is_ok()) return Status(status.code(), options.plan + ": " + status.message());
  // Arguments would be lost silently.
  if ((options.megatron || options.classes) && !options.arguments.empty())
    return {Code::kConfig, fmt::format("'{}': {} takes no arguments for hdt-train", options.arguments.front(),
                                       options.megatron ? "--megatron prints flags only and" : "--classes")};
  if (options.classes) {
    fmt::print("{}", plan::class_sections(plan.value(), cluster.value()));
    return Status::ok();
  }
  if (!options.megatron) {
    fmt::print("{}\n", plan::mpirun_command(plan.value(), options.plan, options.arguments));
    return Status::ok();
  }
  const plan::MegatronFlags exported = plan::megatron_flags(plan.value(), cluster.value());
  fmt::print("{}\n", exported.flags);
  std::vector<std::string> warnings = exported.warnings;
  // Where the fork refuses these flags, or trains something else with them.
  std::ranges::copy(plan::fork_warnings(exported.layout, plan.value().layout()),
                    std::back_inserter(warnings));
  for (const std::string& warning : warnings) fmt::print(stderr, "hdt-plan: warning: {}\n", warning);
  return Status::ok();
}

}  // namespace hdt::tools
