// surroundings.cc: reads limits from the kernel and from the files of control groups, versions 1 and 2.
#include "daemon/diagnosis/surroundings.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/shared_memory.h"
#include "ipc/segment.h"

namespace hdt::daemon {

namespace {

// The smallest group of several nodes. Its segment's size is an upper bound: only pages that are touched
// take memory.
constexpr uint32_t kRanks = 2, kNodes = 2, kLocalRanks = 1;

// The soft limit; RLIM_INFINITY if there is none.
uint64_t limit_of(int which) {
  rlimit limit{};
  return ::getrlimit(static_cast<__rlimit_resource>(which), &limit) == 0 ? limit.rlim_cur : 0;
}

// Counts the descriptor of the folder itself as well.
size_t open_files() {
  std::error_code error;
  size_t count = 0;
  for (std::filesystem::directory_iterator file("/proc/self/fd", error), end; !error && file != end;
       file.increment(error))
    ++count;
  return count;
}

// The number that a file holds. Nothing: the file is not there, or holds none.
std::optional<uint64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  // "max" as well: no limit
  return std::nullopt;
}

// The bytes that are left below the tightest limit of a control group and all its ancestors. Nothing:
// there is no limit.
std::optional<uint64_t> left_in(std::filesystem::path folder, const std::filesystem::path& root,
                                const char* limit, const char* used) {
  std::optional<uint64_t> least;
  // A limit of an ancestor holds for all below it, so every level up to the root is looked at.
  for (;; folder = folder.parent_path()) {
    const auto most = number_in(folder / limit), now = number_in(folder / used);
    if (most && now) least = std::min(least.value_or(UINT64_MAX), *most - std::min(*most, *now));
    if (folder == root || folder == folder.root_path()) return least;
  }
}

// The smallest of what the control groups leave and what the machine has available, in bytes.
std::optional<uint64_t> memory_left() {
  std::optional<uint64_t> least;
  const auto take = [&](const std::optional<uint64_t>& left) {
    if (left) least = std::min(least.value_or(UINT64_MAX), *left);
  };
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/system.slice/x", "9:memory:/x"
    // "NUMBER:CONTROLLERS:PATH". Version 2 has no controllers in its only line; in version 1 the memory
    // controller has a hierarchy of its own.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // In a container the path may be that of the host, of which only the root is visible here.
    std::filesystem::path folder = root.string() + line.substr(second + 1);
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) folder = root;
    if (controllers.empty()) take(left_in(folder.lexically_normal(), root, "memory.max", "memory.current"));
    if (controllers == "memory")
      take(left_in(folder.lexically_normal(), root, "memory.limit_in_bytes", "memory.usage_in_bytes"));
  }
  // "MemAvailable:   123456 kB"
  std::ifstream info("/proc/meminfo");
  for (std::string name, unit; info >> name;) {
    uint64_t kib = 0;
    info >> kib;
    std::getline(info, unit);
    if (name == "MemAvailable:") take(kib << 10);
  }
  return least;
}

}  // namespace

// "": every user of the host can connect to the socket. Else the first obstacle, from the socket upwards.
// Access lists are not looked at.
std::string shut_to_others(const std::string& socket) {
  struct stat state {};
  std::error_code error;
  // To connect, a process needs the right to write to the socket and to search all folders above it.
  const std::filesystem::path path = std::filesystem::absolute(socket, error);
  if (::stat(path.c_str(), &state) != 0) return fmt::format("{}: {}", path.string(), std::strerror(errno));
  if ((state.st_mode & S_IWOTH) == 0)
    return fmt::format("{} has mode {:04o}", path.string(), state.st_mode & 07777);
  for (std::filesystem::path folder = path.parent_path();; folder = folder.parent_path()) {
    if (::stat(folder.c_str(), &state) != 0)
      return fmt::format("{}: {}", folder.string(), std::strerror(errno));
    if ((state.st_mode & S_IXOTH) == 0)
      return fmt::format("folder {} has mode {:04o}", folder.string(), state.st_mode & 07777);
    if (folder == folder.root_path()) return "";
  }
}

// Everything is read or tried anew, so that an administrator who has changed a limit of the running daemon
// sees it at once. Sizes are in bytes.
nlohmann::json surroundings(const std::string& socket) {
  nlohmann::json told = {{"open_files", limit_of(RLIMIT_NOFILE)},
                         {"open_files_used", open_files()},
                         {"memlock_bytes", limit_of(RLIMIT_MEMLOCK)},
                         {"memory_free", nullptr},
                         {"socket", socket},
                         {"socket_shut", shut_to_others(socket)}};
  // Absent values stay null.
  if (const auto left = memory_left()) told["memory_free"] = *left;
  const size_t bytes = ipc::Layout(kRanks, kNodes, kLocalRanks).total;
  told["group_bytes"] = bytes;
  // Tried, not computed: a limit or a seccomp filter may forbid it.
  const auto memory = SharedMemory::create("hdt-doctor", bytes);
  told["memory_error"] = memory.is_ok() ? "" : memory.status().message();
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  uint64_t first = 0, last = 0;
  if (range >> first >> last) told["ports"] = {first, last};
  return told;
}

}  // namespace hdt::daemon
