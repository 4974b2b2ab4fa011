// limits.cc: reads the limits behind limits.h from getrlimit(), /proc and the cgroup's files. It runs
// when something has failed, so it must work with few resources: where a limit cannot be read (no
// descriptor is left, say), the message goes without it.
#include "base/limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

namespace hdt {

namespace {

// Nothing if the limit cannot be read.
std::optional<rlimit> limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return {};
  return limit;
}

// Nothing if the limit cannot be read or there is none.
std::optional<uint64_t> soft_limit(int resource) {
  const auto limit = limit_of(resource);
  if (!limit || limit->rlim_cur == RLIM_INFINITY) return {};
  return limit->rlim_cur;
}

// Nothing if the file cannot be read or is empty.
std::optional<std::string> first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return {};
  return line;
}

// The limit `name` of this process's cgroup or of one above it, as text for a message. The nearest one
// that is limited is named, which need not be the smallest. Only cgroup version 2 is read, by the line
// "0::PATH" of /proc/self/cgroup.
std::optional<std::string> cgroup_limit(const std::string& name) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string path = line.substr(3); !path.empty();) {
      const auto value = first_line("/sys/fs/cgroup" + path + "/" + name);
      if (value && *value != "max") return name + " of cgroup " + path + " is " + *value;
      path.resize(path.rfind('/'));
    }
  }
  return {};
}

// A limit in bytes as text; empty if there is none.
std::string bytes_limit(int resource, const std::string& name) {
  const auto limit = soft_limit(resource);
  return limit ? name + " of process " + own_process() + " is " + std::to_string(*limit) + " bytes" : "";
}

}  // namespace

std::string own_process() {
  return std::string(program_invocation_short_name) + " (pid " + std::to_string(::getpid()) + ")";
}

// ENOMEM may come from the address space's limit, or from the cgroup; the first one that is set is named.
std::string limit_behind(int error) {
  switch (error) {
    case EMFILE: {
      const auto limit = limit_of(RLIMIT_NOFILE);
      if (!limit) return "";
      return "RLIMIT_NOFILE of process " + own_process() + " is " + std::to_string(limit->rlim_cur) +
             " (hard limit " + std::to_string(limit->rlim_max) +
             "): raise it with ulimit -n, for a service with LimitNOFILE";
    }
    case ENFILE: {
      const auto limit = first_line("/proc/sys/fs/file-max");
      return limit ? "the limit of this machine, fs.file-max, is " + *limit : "";
    }
    case EFBIG:
      return bytes_limit(RLIMIT_FSIZE, "RLIMIT_FSIZE (ulimit -f)");
    case ENOMEM: {
      const std::string space = bytes_limit(RLIMIT_AS, "RLIMIT_AS (ulimit -v)");
      return !space.empty() ? space : cgroup_limit("memory.max").value_or("");
    }
    default:
      return "";
  }
}

std::string descriptor_limit_reached() {
  const auto limit = soft_limit(RLIMIT_NOFILE);
  return "process " + own_process() + " is at its limit of " + (limit ? std::to_string(*limit) + " " : "") +
         "open files and takes no more connections: raise RLIMIT_NOFILE (LimitNOFILE of its service, ulimit "
         "-n)";
}

Result<RaisedLimit> raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Status::from_errno("getrlimit(RLIMIT_NOFILE)", errno);
  const RaisedLimit raised{limit.rlim_cur, limit.rlim_max};
  limit.rlim_cur = limit.rlim_max;
  if (raised.from != raised.to && ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Status::from_errno(
        "raising RLIMIT_NOFILE from " + std::to_string(raised.from) + " to " + std::to_string(raised.to),
        errno);
  }
  return raised;
}

// EAGAIN of pthread_create() does not identify the limit, so all that are set are listed. The machine's
// limit is named only if no other is.
Status thread_refused(const std::string& name, int error) {
  std::string limits;
  const auto add = [&limits](const std::string& text) { limits += (limits.empty() ? ": " : "; ") + text; };
  if (const auto processes = soft_limit(RLIMIT_NPROC)) {
    add("the limit of processes (RLIMIT_NPROC, ulimit -u) of user " + std::to_string(::getuid()) + " is " +
        std::to_string(*processes));
  }
  if (const auto pids = cgroup_limit("pids.max")) add(*pids);
  // A thread's stack is memory, too.
  if (const std::string space = bytes_limit(RLIMIT_AS, "RLIMIT_AS (ulimit -v)"); !space.empty()) add(space);
  if (const auto threads = first_line("/proc/sys/kernel/threads-max"); threads && limits.empty()) {
    add("the limit of this machine, kernel.threads-max, is " + *threads);
  }
  return {Code::kSystem, "process " + own_process() + " cannot start a thread (" + name +
                             "): " + std::strerror(error) + limits};
}

}  // namespace hdt
