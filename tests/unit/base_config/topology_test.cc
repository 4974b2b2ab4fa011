// topology_test.cc: cores, quotas and NIC places, on described machines and on this one.
#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <fstream>

#include "temporary_file.h"

namespace hdt {
namespace {

// Two NUMA nodes of two cores, with third-level caches of 32 and 16 MiB; eth0 and mlx5_0 sit on the second,
// eth1 on none in particular, sda is a disk.
constexpr char kTwoNodes[] = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" allowed_cpuset="0xf" nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="1048576"/>
   <object type="L3Cache" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="20" cache_size="33554432" depth="3" cache_linesize="64" cache_associativity="16" cache_type="0">
   <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4">
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/></object>
   <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="6">
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="7"/></object></object>
  </object>
  <object type="Package" os_index="1" cpuset="0xc" complete_cpuset="0xc" nodeset="0x2" complete_nodeset="0x2" gp_index="8">
   <object type="NUMANode" os_index="1" cpuset="0xc" complete_cpuset="0xc" nodeset="0x2" complete_nodeset="0x2" gp_index="9" local_memory="1048576"/>
   <object type="L3Cache" cpuset="0xc" complete_cpuset="0xc" nodeset="0x2" complete_nodeset="0x2" gp_index="21" cache_size="16777216" depth="3" cache_linesize="64" cache_associativity="16" cache_type="0">
   <object type="Core" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x2" complete_nodeset="0x2" gp_index="10">
    <object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x2" complete_nodeset="0x2" gp_index="11"/></object>
   <object type="Core" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x2" complete_nodeset="0x2" gp_index="12">
    <object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x2" complete_nodeset="0x2" gp_index="13"/></object></object>
   <object type="Bridge" gp_index="14" bridge_type="0-1" depth="0" bridge_pci="0000:[80-81]">
    <object type="PCIDev" gp_index="15" pci_busid="0000:81:00.0" pci_type="0200 [15b3:1017] [15b3:0007] 00" pci_link_speed="15.753846">
     <object type="OSDev" gp_index="16" name="eth0" osdev_type="2"/>
     <object type="OSDev" gp_index="17" name="mlx5_0" osdev_type="3"/></object></object>
  </object>
  <object type="OSDev" gp_index="18" name="eth1" osdev_type="2"/>
  <object type="OSDev" gp_index="19" name="sda" osdev_type="0"/>
 </object>
</topology>
)";

TEST(Topology, DescribedMachine) {
  Result<Topology> topology = Topology::from_xml(kTwoNodes);
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  EXPECT_EQ(topology.value().usable_cores(), 4);
  EXPECT_EQ(topology.value().cache_bytes(), uint64_t{16} << 20);
}

TEST(Topology, ForeignTextIsRefused) { EXPECT_FALSE(Topology::from_xml("<html></html>").is_ok()); }

// Sets the mask of every thread of this process: sanitizers have threads of their own.
void set_process_mask(const cpu_set_t& mask) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(task.path().filename().string());
    ASSERT_EQ(sched_setaffinity(thread, sizeof mask, &mask), 0) << "thread " << thread;
  }
}

TEST(Topology, CoresFollowTheAffinityMask) {
  Result<Topology> topology = Topology::load();
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(topology.value().usable_cores(), 1);
  EXPECT_LE(topology.value().usable_cores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  set_process_mask(one);
  EXPECT_EQ(topology.value().usable_cores(), 1);
  set_process_mask(before);
}

// As the kernel tells it for a core, not as the sum over cores that do not share it.
TEST(Topology, TheCacheIsTheOneThatACoreReaches) {
  uint64_t largest = 0;
  for (int index = 0; index < 6; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    uint64_t kibibytes = 0;
    if (file >> kibibytes) largest = std::max(largest, kibibytes << 10);
  }
  if (largest == 0) GTEST_SKIP() << "the kernel does not tell the sizes of caches";
  EXPECT_EQ(cache_bytes(), largest);
}

TEST(CgroupQuota, TheTightestAncestorCounts) {
  test::TemporaryFolder mount;
  mount.write("jobs/cpu.max", "150000 100000\n");
  mount.write("jobs/a/cpu.max", "max 100000\n");
  mount.write("jobs/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/jobs/a\n", mount.path()), 1.5);
  EXPECT_EQ(cgroup_cpu_quota("1:name=x:/\n0::/jobs/b\n", mount.path()), 0.5);
  EXPECT_EQ(cgroup_cpu_quota("0::/other\n", mount.path()), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", mount.path()), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota("", mount.path()), std::nullopt);
}

}  // namespace
}  // namespace hdt
