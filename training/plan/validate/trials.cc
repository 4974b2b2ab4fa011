// trials.cc: reads the file of trials, then the files that it names.
#include "training/plan/validate/trials.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "training/plan/describe/toml_fields.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/validate/measured_runs.h"

namespace hdt::plan {
namespace {

// Names become names of files.
constexpr size_t kMostNameBytes = 100;

std::string read_name(TomlFields& fields, const char* otherwise) {
  std::string name = otherwise ? fields.text_or("name", otherwise) : fields.text("name");
  const bool has_other = name.find_first_of(std::string_view("/\0", 2)) != std::string::npos;
  if (has_other || name.size() > kMostNameBytes || name == "." || name == "..")
    fields.fail("name", fmt::format("expected a name of a file, of at most {} bytes and without '/'",
                                    kMostNameBytes));
  return name;
}

// A plan's file, or a plan in place.
TrialFile::Trial read_trial(TomlFields& fields, size_t number) {
  TrialFile::Trial trial;
  trial.plan_path = fields.text_or("plan", "");
  trial.measured.name = read_name(fields, fmt::format("trial-{}", number).c_str());
  read_measured(fields, trial.measured);
  if (trial.plan_path.empty()) {
    trial.measured.plan = read_plan_fields(fields);
    const Status status = check_replicas(trial.measured.plan);
    if (!status.is_ok()) fields.fail("replica", status.message());
  }
  fields.end();
  return trial;
}

}  // namespace

bool has_trials(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const Result<toml::table> table = parse_toml_file(path);
  return table.is_ok() && table.value().contains("trials");
}

Result<TrialFile> read_trial_file(const std::string& path) {
  return read_toml<TrialFile>(path, [](TomlFields& fields) {
    TrialFile file;
    file.name = read_name(fields, nullptr);
    file.model = fields.text("model");
    file.profile = fields.text("profile");
    file.cluster = fields.text("cluster");
    std::set<std::string> names;
    for (TomlFields& entry : fields.tables("trials")) {
      file.trials.push_back(read_trial(entry, file.trials.size() + 1));
      const std::string& name = file.trials.back().measured.name;
      if (!names.insert(name).second)
        entry.fail("name", fmt::format("'{}' given before, expected another name", name));
    }
    return file;
  });
}

Result<std::vector<PublishedSet>> read_trials(const std::string& path) {
  auto read = read_trial_file(path);
  if (!read.is_ok()) return read.status();
  TrialFile& file = read.value();
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<PublishedSet> sets(1);
  PublishedSet& set = sets.front();
  set.name = std::move(file.name);
  auto model = read_model(folder / file.model);
  if (!model.is_ok()) return model.status();
  set.model = model.take();
  auto profile = read_profile(folder / file.profile);
  if (!profile.is_ok()) return profile.status();
  set.profile = profile.take();
  auto cluster = read_cluster(folder / file.cluster);
  if (!cluster.is_ok()) return cluster.status();
  set.cluster = cluster.take();
  for (TrialFile::Trial& trial : file.trials) {
    std::string where = fmt::format("{}: trials '{}'", path, trial.measured.name);
    if (!trial.plan_path.empty()) {
      where = folder / trial.plan_path;
      auto plan = read_plan(where);
      if (!plan.is_ok()) return plan.status();
      trial.measured.plan = plan.take();
    }
    HDT_RETURN_IF_ERROR(add_row(where, std::move(trial.measured), set));
  }
  return sets;
}

}  // namespace hdt::plan
