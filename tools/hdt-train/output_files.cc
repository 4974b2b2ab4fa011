// output_files.cc: compares the canonical paths of all files that the flags name.
#include "tools/hdt-train/output_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "training/data/indexed_format.h"

namespace hdt::tools {
namespace {

namespace fs = std::filesystem;

// The canonical path; works for a file that does not exist yet. "" for anything that is no regular file,
// as /dev/null, which several flags may share.
std::string place_of(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return "";
  const fs::path place = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return ignored ? "" : place.string();
}

}  // namespace

std::string files_in_each_others_way(const TrainFlags& flags) {
  // Inputs come first: each output is compared with all files before it.
  std::vector<std::pair<const char*, std::string>> files = {{"--text", flags.text},
                                                            {"--plan", flags.plan_path},
                                                            {"--loss-log", flags.loss_log},
                                                            {"--loss-curve", flags.loss_curve}};
  for (const TrainFlags::DataPath& data : flags.data_paths) {
    files.emplace(files.begin(), "--data-path", training::index_path(data.prefix));
    files.emplace(files.begin(), "--data-path", training::data_path(data.prefix));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& [flag, path] = files[i];
    // Only outputs can be in the way of another file.
    if (path.empty() || (path != flags.loss_log && path != flags.loss_curve)) continue;
    const std::string place = place_of(path);
    for (size_t before = 0; before < i && !place.empty(); ++before) {
      const auto& [other, other_path] = files[before];
      if (!other_path.empty() && place_of(other_path) == place)
        return fmt::format("{} {}: that is the file of {}; expected another one", flag, path, other);
    }
  }
  return "";
}

}  // namespace hdt::tools
