// available_memory_test.cc: what the machine and the limits of cgroups leave.
#include "base/available_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "temporary_file.h"

namespace hdt {
namespace {

constexpr char kMachine[] = "MemTotal: 2000 kB\nMemAvailable:    1000 kB\n";
constexpr int64_t kMachineBytes = 1000 * 1024;

TEST(AvailableMemory, IsTheMachinesWithoutALimit) {
  test::TemporaryFolder mount;
  mount.write("jobs/memory.max", "max\n");
  mount.write("jobs/memory.current", "5\n");
  mount.write("memory/old/memory.limit_in_bytes", "9223372036854771712\n");
  mount.write("memory/old/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(available_memory_bytes(kMachine, "", mount.path()), kMachineBytes);
  EXPECT_EQ(available_memory_bytes(kMachine, "0::/jobs\n", mount.path()), kMachineBytes);
  EXPECT_EQ(available_memory_bytes(kMachine, "4:memory:/old\n", mount.path()), kMachineBytes);
  EXPECT_EQ(available_memory_bytes("garbage", "", mount.path()), std::nullopt);
}

TEST(AvailableMemory, TheTightestAncestorCounts) {
  test::TemporaryFolder mount;
  mount.write("jobs/memory.max", "5000\n");
  mount.write("jobs/memory.current", "3000\n");
  mount.write("jobs/memory.stat", "anon 10\ninactive_file 500\n");
  mount.write("jobs/a/memory.max", "4000\n");
  mount.write("jobs/a/memory.current", "100\n");
  mount.write("jobs/b/memory.max", "200\n");
  mount.write("jobs/b/memory.current", "300\n");
  EXPECT_EQ(available_memory_bytes(kMachine, "1:name=x:/\n0::/jobs/a\n", mount.path()), 2500);
  EXPECT_EQ(available_memory_bytes(kMachine, "0::/jobs/b\n", mount.path()), 0);
}

TEST(AvailableMemory, TheFirstVersionOfCgroupsIsKnown) {
  test::TemporaryFolder mount;
  mount.write("memory/job/memory.limit_in_bytes", "4096\n");
  mount.write("memory/job/memory.usage_in_bytes", "1024\n");
  mount.write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 24\n");
  const std::string self = "9:name=systemd:/job\n4:memory:/job\n2:cpuacct:/\n0::/\n";
  EXPECT_EQ(available_memory_bytes(kMachine, self, mount.path()), 4096 - 1024 + 24);
  EXPECT_EQ(available_memory_bytes(kMachine, "4:cpu,memory:/job/inner\n", mount.path()), 4096 - 1024 + 24);
}

// Memory that is given back stays in it.
TEST(PeakMemory, CountsWhatWasTouched) {
  constexpr size_t kBytes = size_t{64} << 20;
  const int64_t before = peak_memory_bytes().value_or(0);
  EXPECT_GT(before, 0);
  { const std::vector<char> touched(kBytes, 1); }
  EXPECT_GE(peak_memory_bytes().value_or(0), static_cast<int64_t>(kBytes));
  EXPECT_GE(peak_memory_bytes().value_or(0), before);
}

TEST(AvailableMemory, IsKnownOnThisMachine) { EXPECT_GT(available_memory_bytes().value_or(0), 0); }

}  // namespace
}  // namespace hdt
