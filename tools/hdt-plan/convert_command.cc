// convert_command.cc: `hdt-plan convert`: a layout in another form (training/plan/convert). Warnings go to
// standard error, so that standard output is only the form.
#include <fmt/format.h>

#include <cstdio>
#include <set>
#include <utility>

#include "tools/hdt-plan/commands.h"
#include "tools/hdt-plan/output_file.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::tools {

Status convert_command(const ConvertOptions& options) {
  HDT_RETURN_IF_ERROR(check_output("--output", options.output));
  std::string path = options.input;
  std::vector<std::string> words = options.flags;
  // A path that begins so is written as "./--...".
  if (path.starts_with("--")) words.insert(words.begin(), std::exchange(path, {}));
  plan::FormContext context;
  context.ranks = options.ranks;
  plan::Cluster cluster;
  if (!options.cluster.empty()) {
    Result<plan::Cluster> read = plan::read_cluster(options.cluster);
    if (!read.is_ok()) return read.status();
    cluster = read.take();
    context.cluster = &cluster;
  }
  const Result<plan::Warned<plan::Strategy>> read = plan::read_form(options.from, path, words, context);
  if (!read.is_ok()) return read.status();
  const Result<plan::Warned<std::string>> written = plan::write_form(options.to, read.value().value);
  if (!written.is_ok())
    return {written.status().code(),
            fmt::format("--to {}: {}", plan::form_name(options.to), written.status().message())};
  if (options.output.empty()) {
    fmt::print("{}", written.value().value);
  } else {
    HDT_RETURN_IF_ERROR(write_output("--output", options.output, written.value().value));
  }
  // Flags to flags of the same fork would warn twice.
  std::set<std::string> printed;
  for (const auto* warnings : {&read.value().warnings, &written.value().warnings}) {
    for (const std::string& warning : *warnings) {
      if (printed.insert(warning).second) fmt::print(stderr, "hdt-plan: warning: {}\n", warning);
    }
  }
  return Status::ok();
}

}  // namespace hdt::tools
