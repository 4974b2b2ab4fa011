// topology.cc: hwloc calls behind topology.h, and the CPU quota of cgroups, which hwloc does not know.
#include "base/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace hdt {
namespace {

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, BitmapFree>;

// The whole file; empty if it cannot be read.
std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

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

// The part that both sources share. IMPORTANT keeps NICs among the I/O objects and leaves out bridges.
Result<Topology> Topology::load_into(std::unique_ptr<hwloc_topology, Destroy> topology) {
  // hwloc leaves out I/O devices by default.
  hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology.get()) != 0)
    return Status::from_errno("reading the machine's topology", errno);
  return Topology(std::move(topology));
}

Result<Topology> Topology::load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status(Code::kSystem, "hwloc cannot be initialised");
  std::unique_ptr<hwloc_topology, Destroy> topology(raw);
  // Only NICs matter here. hwloc's plugins for GPUs would start vendor runtimes. The one for PCI is not
  // needed to place a NIC, as the kernel's own files (sysfs) report it.
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

int Topology::numa_nodes() const {
  return std::max(1, hwloc_get_nbobjs_by_type(topology_.get(), HWLOC_OBJ_NUMANODE));
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

std::optional<int> Topology::numa_node_of(const std::string& device) const {
  for (hwloc_obj_t os = nullptr; (os = hwloc_get_next_osdev(topology_.get(), os)) != nullptr;) {
    if (os->name == nullptr || device != os->name) continue;
    if (os->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK &&
        os->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS) {
      continue;
    }
    // The NIC's place is that of the nearest object with CPUs. A nodeset of several bits means equally
    // near to several nodes.
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology_.get(), os);
    if (near == nullptr || hwloc_bitmap_weight(near->nodeset) != 1) return std::nullopt;
    const hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(
        topology_.get(), static_cast<unsigned>(hwloc_bitmap_first(near->nodeset)));
    if (node == nullptr) return std::nullopt;
    return static_cast<int>(node->logical_index);
  }
  return std::nullopt;
}

Status Topology::pin_thread_near(int numa_node) const {
  if (numa_node < 0 || numa_node >= numa_nodes()) {
    return {Code::kInvalidArgument, "no NUMA node " + std::to_string(numa_node)};
  }
  if (numa_nodes() == 1 || !hwloc_topology_is_thissystem(topology_.get())) return Status::ok();
  const hwloc_obj_t node =
      hwloc_get_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(numa_node));
  const Bitmap cpus = allowed_cpus(topology_.get());
  // Only those of the node's cores that this process may use.
  hwloc_bitmap_and(cpus.get(), cpus.get(), node->cpuset);
  // The administrator has kept this process off that node, which beats nearness.
  if (hwloc_bitmap_iszero(cpus.get())) return Status::ok();
  if (hwloc_set_cpubind(topology_.get(), cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return Status::from_errno("pinning a thread to NUMA node " + std::to_string(numa_node), errno);
  }
  return Status::ok();
}

// Walks from the process's cgroup up to the root, because every ancestor's quota limits it, too.
std::optional<double> cgroup_cpu_quota(const std::string& self_cgroup, const std::string& mount) {
  std::istringstream lines(self_cgroup);
  std::string path;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) path = line.substr(3);  // version 2's only line
  }
  std::optional<double> tightest;
  while (!path.empty()) {
    std::istringstream limit(read_text(mount + (path == "/" ? "" : path) + "/cpu.max"));
    double quota = 0;
    double period = 0;
    // "max 100000" (unlimited) fails to parse as a number and is skipped.
    if (limit >> quota >> period && quota > 0 && period > 0) {
      tightest = tightest ? std::min(*tightest, quota / period) : quota / period;
    }
    if (path == "/") break;
    const size_t slash = path.rfind('/');
    path = slash == 0 ? "/" : path.substr(0, slash);
  }
  return tightest;
}

}  // namespace hdt
