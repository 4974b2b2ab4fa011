// topology.h: what HDT needs to know of the machine: how many cores this process may use, on which NUMA node
// a NIC sits, and a way to keep a thread near it. On hwloc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

struct hwloc_topology;

namespace hdt {

class Topology {
 public:
  // This machine.
  static Result<Topology> load();
  // A machine described in hwloc's XML format; threads are never pinned by it.
  static Result<Topology> from_xml(const std::string& xml);

  // Cores this process may use: those of its affinity mask and cpuset, limited by the CPU quota of its
  // cgroup.
  int usable_cores() const;
  int numa_nodes() const;
  // Bytes of the last cache before memory that a core reaches; where they differ, the smallest; 0 if not
  // known.
  uint64_t cache_bytes() const;
  // Index of the NUMA node next to a network or RDMA device ("eth0", "mlx5_0"); nothing if the device is
  // unknown, has no hardware behind it, or is equally near to several nodes.
  std::optional<int> numa_node_of(const std::string& device) const;
  // Keeps the calling thread on the cores of a NUMA node (those it is allowed to use). Does nothing on a
  // machine with one node, or when none of the node's cores is allowed.
  Status pin_thread_near(int numa_node) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  explicit Topology(std::unique_ptr<hwloc_topology, Destroy> topology) : topology_(std::move(topology)) {}
  static Result<Topology> load_into(std::unique_ptr<hwloc_topology, Destroy> topology);
  std::unique_ptr<hwloc_topology, Destroy> topology_;
};

// cache_bytes() of this machine, read once; 8 MiB if not known. From any thread. (The C library's
// _SC_LEVEL3_CACHE_SIZE is, on AMD's processors, the sum of a package's caches, of which a core reaches one:
// ten times as much on some.)
uint64_t cache_bytes();

// CPUs' worth of time the cgroup (version 2) of this process may use, from the text of /proc/self/cgroup and
// the cpu.max files under `mount` ("/sys/fs/cgroup"): the tightest of the group and its ancestors; nothing if
// unlimited.
std::optional<double> cgroup_cpu_quota(const std::string& self_cgroup, const std::string& mount);

}  // namespace hdt
