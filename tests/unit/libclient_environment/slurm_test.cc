// slurm_test.cc: Slurm's node lists and the port of a step.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "libclient/launch/environment.h"

namespace hdt::client {
namespace {

TEST(FirstSlurmHost, Lists) {
  const std::map<std::string, std::string> lists = {
      {"node1", "node1"},
      {"node[01-04,07]", "node01"},
      {"node[7]", "node7"},
      {"node[3,1-2]", "node3"},
      {"a,b[1-2]", "a"},
      {"b[1-2],a", "b1"},
      {"rack[1-2]n[01-04,07],x", "rack1n01"},
      {"n[001-100]-ib0", "n001-ib0"},
      {"n1.example.org,n2.example.org", "n1.example.org"},
  };
  for (const auto& [list, host] : lists) {
    const Result<std::string> first = first_slurm_host(list);
    ASSERT_TRUE(first.is_ok()) << list << ": " << first.status().to_string();
    EXPECT_EQ(first.value(), host) << list;
  }
}

TEST(FirstSlurmHost, BrokenLists) {
  for (const char* list : {"", ",a", "n[", "n[1", "n[]", "n[-3]", "n[a-b]", "n[1a]", "n]1", "n[[1]]"}) {
    const Result<std::string> first = first_slurm_host(list);
    ASSERT_FALSE(first.is_ok()) << list << " gave " << first.value();
    EXPECT_EQ(first.status().code(), Code::kConfig);
    EXPECT_NE(first.status().message().find("SLURM_STEP_NODELIST"), std::string::npos);
  }
}

TEST(SlurmPort, StaysInItsRangeAndDiffersBetweenNeighbours) {
  std::set<int> ports;
  for (uint64_t job = 0; job < 10; ++job) {
    for (uint64_t step = 0; step < 10; ++step) ports.insert(slurm_port(1'000'000 + job, step));
  }
  EXPECT_EQ(ports.size(), 100U);
  for (const uint64_t id : {uint64_t{0}, uint64_t{0xffffffff}}) {
    EXPECT_GE(slurm_port(id, id), 20'000);
    EXPECT_LT(slurm_port(id, id), 32'000);
  }
}

}  // namespace
}  // namespace hdt::client
