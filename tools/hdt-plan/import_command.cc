// import_command.cc: `hdt-plan import`: writes published sets, or trials, as the files that the other
// subcommands read.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tools/hdt-plan/commands.h"
#include "tools/hdt-plan/output_file.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/validate/measured_runs.h"
#include "training/plan/validate/trials.h"

namespace hdt::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOutput = "--output";

// Published sets do not say how much memory a device has.
constexpr const char* kMemoryComment =
    "# The published set does not say how much memory the devices have, so every plan fits. Set "
    "memory_bytes\n"
    "# before a search.\n";

// A folder of that name that holds nothing. Files of an import may have been changed by hand since.
Status make_new_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return {Code::kSystem, fmt::format("{}: {}: {}", kOutput, folder.string(), error.message())};
  if (!fs::is_empty(folder, error) || error)
    return {Code::kInvalidArgument,
            fmt::format("{}: {} holds files already; expected a new folder", kOutput, folder.string())};
  return Status::ok();
}

// `memory_is_known`: the set says how much memory its devices have.
Status write_set(const plan::PublishedSet& set, bool memory_is_known, const fs::path& folder) {
  const auto write = [&](const std::string& file, const std::string& text) {
    return write_output(kOutput, folder / file, text);
  };
  HDT_RETURN_IF_ERROR(write("profile.toml", plan::to_toml(set.profile)));
  HDT_RETURN_IF_ERROR(write("model.toml", plan::to_toml(set.model)));
  HDT_RETURN_IF_ERROR(
      write("cluster.toml", (memory_is_known ? "" : kMemoryComment) + plan::to_toml(set.cluster)));
  std::vector<std::string> plans;
  for (const plan::Measurement& row : set.rows) {
    plans.push_back("plan-" + row.name + ".toml");
    HDT_RETURN_IF_ERROR(write(plans.back(), plan::to_toml(row.plan)));
  }
  return write("runs.toml", plan::measured_runs_toml(set, plans));
}

}  // namespace

Status import_command(const ImportOptions& options) {
  std::error_code ignored;
  const bool trials = fs::is_regular_file(options.published, ignored);
  const auto sets =
      trials ? plan::read_trials(options.published) : plan::import_published_sets(options.published);
  if (!sets.is_ok()) return sets.status();
  // All folders are there before the first file is written.
  for (const plan::PublishedSet& set : sets.value())
    HDT_RETURN_IF_ERROR(make_new_folder(fs::path(options.output) / set.name));
  for (const plan::PublishedSet& set : sets.value()) {
    const fs::path folder = fs::path(options.output) / set.name;
    HDT_RETURN_IF_ERROR(write_set(set, trials, folder));
    fmt::print("{}: model {}, {} nodes, {} measured plans\n", folder.string(), set.model.name,
               set.cluster.nodes.size(), set.rows.size());
  }
  return Status::ok();
}

}  // namespace hdt::tools
