// topology.cc: hwloc calls behind topology.h, and the CPU quota of cgroups, which hwloc does not know.
#include "base/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/cgroup_files.h"

namespace hdt {
namespace {

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, BitmapFree>;

// CPUs the calling process may run on; the whole machine if the system does not report them.
Bitmap allowed_cpus(hwloc_topology* topology) {
  Bitmap cpus(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, cpus.get(), HWLOC_CPUBIND_PROCESS) != 0 ||
      hwloc_bitmap_iszero(cpus.get())) {
    hwloc_bitmap_copy(cpus.get(), hwloc_topology_get_allowed_cpuset(topology));
  }
  hwloc_bitmap_and(cpus.get(), cpus.get(), hwloc_topology_get_allowed_cpuset(topology));
  return cpus;
}

}  // namespace

void Topology::Destroy::operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }

// The part that both sources share. By default hwloc leaves out I/O devices, which nothing here needs.
Result<Topology> Topology::load_into(std::unique_ptr<hwloc_topology, Destroy> topology) {
  if (hwloc_topology_load(topology.get()) != 0)
    return Status::from_errno("reading the machine's topology", errno);
  return Topology(std::move(topology));
}

Result<Topology> Topology::load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status(Code::kSystem, "hwloc cannot be initialised");
  std::unique_ptr<hwloc_topology, Destroy> topology(raw);
  // Only cores and caches matter here. hwloc's plugins for GPUs would start vendor runtimes.
  for (const char* component : {"cuda", "nvml", "rsmi", "levelzero", "opencl", "gl", "pci"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  return load_into(std::move(topology));
}

Result<Topology> Topology::from_xml(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status(Code::kSystem, "hwloc cannot be initialised");
  std::unique_ptr<hwloc_topology, Destroy> topology(raw);
  if (hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size() + 1)) != 0) {
    return Status(Code::kInvalidArgument, "not a topology in hwloc's XML format");
  }
  return load_into(std::move(topology));
}

int Topology::usable_cores() const {
  const Bitmap cpus = allowed_cpus(topology_.get());
  // A core counts if at least one of its hardware threads is allowed: an engine thread wants a core, not
  // a hardware thread.
  int cores = 0;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_CORE, core)) != nullptr;) {
    if (hwloc_bitmap_intersects(core->cpuset, cpus.get())) ++cores;
  }
  if (cores == 0) cores = hwloc_bitmap_weight(cpus.get());  // machines that do not report cores
  if (hwloc_topology_is_thissystem(topology_.get())) {
    // The quota of this process says nothing about a machine that was read from XML.
    const auto quota = cgroup_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
    if (quota) cores = std::min(cores, static_cast<int>(std::ceil(*quota)));
  }
  return std::max(cores, 1);
}

uint64_t Topology::cache_bytes() const {
  // From the level farthest from the core; the first one that exists is the last before memory.
  for (const hwloc_obj_type_t level :
       {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    uint64_t smallest = 0;
    for (hwloc_obj_t cache = nullptr;
         (cache = hwloc_get_next_obj_by_type(topology_.get(), level, cache)) != nullptr;) {
      const uint64_t bytes = cache->attr->cache.size;
      if (bytes > 0 && (smallest == 0 || bytes < smallest)) smallest = bytes;
    }
    if (smallest > 0) return smallest;
  }
  return 0;
}

uint64_t cache_bytes() {
  // The initialisation of a static is thread-safe; later calls only load.
  static const uint64_t bytes = [] {
    constexpr uint64_t kWhereNobodyTells = uint64_t{8} << 20;
    const auto topology = Topology::load();
    const uint64_t known = topology.is_ok() ? topology.value().cache_bytes() : 0;
    return known > 0 ? known : kWhereNobodyTells;
  }();
  return bytes;
}

std::optional<double> cgroup_cpu_quota(const std::string& self_cgroup, const std::string& mount) {
  std::istringstream lines(self_cgroup);
  std::string path;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) path = line.substr(3);  // version 2's only line
  }
  std::optional<double> tightest;
  for_each_ancestor(mount, path, [&](const std::string& folder) {
    std::istringstream limit(read_text(folder + "/cpu.max"));
    double quota = 0;
    double period = 0;
    // "max 100000" (unlimited) fails to parse as a number and is skipped.
    if (limit >> quota >> period && quota > 0 && period > 0)
      tightest = std::min(tightest.value_or(quota / period), quota / period);
  });
  return tightest;
}

}  // namespace hdt
