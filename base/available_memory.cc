// available_memory.cc: reads the kernel's figures.
#include "base/available_memory.h"

#include <algorithm>
#include <sstream>

#include "base/cgroup_files.h"

namespace hdt {
namespace {

// The number behind a word that begins a line, as in "inactive_file 4096".
std::optional<int64_t> number_behind(const std::string& word, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return std::nullopt;
}

// The names of one version's files.
struct Files {
  const char* limit;
  const char* usage;
  const char* droppable;  // the word in memory.stat for page cache that is not in use, children included
};
constexpr Files kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
constexpr Files kVersion2 = {"/memory.max", "/memory.current", "inactive_file"};

// What the limit of one folder leaves; nothing if it has none ("max", or a number that no machine has).
std::optional<int64_t> left_in(const std::string& folder, const Files& files) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  std::istringstream limit_text(read_text(folder + files.limit));
  std::istringstream usage_text(read_text(folder + files.usage));
  int64_t limit = 0;
  int64_t usage = 0;
  if (!(limit_text >> limit) || limit >= kNoLimit || !(usage_text >> usage)) return std::nullopt;
  const int64_t droppable = number_behind(files.droppable, read_text(folder + "/memory.stat")).value_or(0);
  return std::max<int64_t>(0, limit - usage + std::min(droppable, usage));
}

// A line of this process's status that has KiB.
std::optional<int64_t> own_status_bytes(const std::string& label) {
  const std::optional<int64_t> kib = number_behind(label, read_text("/proc/self/status"));
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

}  // namespace

std::optional<int64_t> peak_memory_bytes() { return own_status_bytes("VmHWM:"); }

std::optional<int64_t> own_memory_bytes() { return own_status_bytes("RssAnon:"); }

std::optional<int64_t> available_memory_bytes() {
  return available_memory_bytes(read_text("/proc/meminfo"), read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
}

std::optional<int64_t> available_memory_bytes(const std::string& meminfo, const std::string& self_cgroup,
                                              const std::string& mount) {
  std::optional<int64_t> least = number_behind("MemAvailable:", meminfo);
  if (least) *least *= 1024;
  // "0::PATH" is the group of version 2; "4:memory:PATH", or "4:cpu,memory:PATH", that of version 1.
  std::istringstream lines(self_cgroup);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string root = version_2 ? mount : mount + "/memory";
    // A container sees its own group as the root.
    for_each_ancestor(root, line.substr(second + 1), [&](const std::string& folder) {
      const auto left = left_in(folder, version_2 ? kVersion2 : kVersion1);
      if (left) least = std::min(least.value_or(*left), *left);
    });
  }
  return least;
}

}  // namespace hdt
