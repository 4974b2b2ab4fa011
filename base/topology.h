// topology.h: what HDT needs to know of the machine: how many cores this process may use, and how large the
// caches are. It uses hwloc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

struct hwloc_topology;

namespace hdt {

// A snapshot of the machine. It does not change once it is loaded, so any thread may read it. Loading
// takes some milliseconds and reads many files, so a process does it once.
class Topology {
 public:
  // The topology of this machine. kSystem: hwloc refuses.
  static Result<Topology> load();
  // A machine that is described in hwloc's XML format, for tests.
  // kInvalidArgument: the text is no such description.
  static Result<Topology> from_xml(const std::string& xml);

  // Physical cores this process may use, at least 1: those of its affinity mask and cpuset, limited by
  // the CPU quota of its cgroup (rounded up).
  int usable_cores() const;
  // Bytes of the last cache before memory that a core reaches. If the caches differ, the smallest; 0 if
  // not known.
  uint64_t cache_bytes() const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  explicit Topology(std::unique_ptr<hwloc_topology, Destroy> topology) : topology_(std::move(topology)) {}
  static Result<Topology> load_into(std::unique_ptr<hwloc_topology, Destroy> topology);
  std::unique_ptr<hwloc_topology, Destroy> topology_;
};

// cache_bytes() of this machine, read once; 8 MiB if not known. From any thread. The C library's
// _SC_LEVEL3_CACHE_SIZE is no substitute: on AMD's processors it is the sum of a package's caches, of
// which a core reaches one, on some a tenth.
uint64_t cache_bytes();

// The number of CPUs whose time the cgroup (version 2) of this process may use: the smallest limit of
// the group and its ancestors; nothing if there is no limit. `self_cgroup` is the text of
// /proc/self/cgroup, `mount` the folder with the cpu.max files ("/sys/fs/cgroup").
std::optional<double> cgroup_cpu_quota(const std::string& self_cgroup, const std::string& mount);

}  // namespace hdt
