// adoption_test.cc: memory that ranks hand over as that of a group: only what a daemon made, once, and as it
// was then.
#include "daemon/membership/adoption.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/daemon_engine/played.h"

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kUser = 1000;

class AdoptionTest : public ::testing::Test {
 protected:
  // A segment of one node with two ranks.
  SharedMemory make(uint64_t id) {
    const ipc::Layout layout(2, 1, 2);
    auto memory = SharedMemory::create("group", layout.total).take();
    ipc::Segment::format(memory.data(), layout, id, "dp", 0);
    return memory;
  }
  Result<Adoption::Found> find(const SharedMemory& memory, uint32_t local, uint32_t uid = kUser,
                               uint32_t engine = 0) {
    return adoption_.find({0, engine, local}, uid, UniqueFd(::fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0)));
  }
  static ipc::Header& header_of(const SharedMemory& memory) {
    return *reinterpret_cast<ipc::Header*>(memory.data());
  }

  Adoption adoption_;
};

TEST_F(AdoptionTest, EachRankIsTakenOnce) {
  const SharedMemory memory = make(7);
  const auto first = find(memory, 1);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ(first.value().id, 7U);
  const auto spec = adoption_.describe(first.value(), NodeInfo{});
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec.value().node_of_rank.size(), 2U);
  EXPECT_THAT(find(memory, 1).status().message(), HasSubstr("already"));
  EXPECT_THAT(find(memory, 0, kUser + 1).status().message(), HasSubstr("for another engine or user"));
  EXPECT_FALSE(find(memory, 0, kUser, 1).is_ok());
  const auto second = find(memory, 0);
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  EXPECT_EQ(second.value().memory, nullptr);
  const SharedMemory other = make(7);
  EXPECT_THAT(find(other, 0).status().message(), HasSubstr("different memory"));
}

// A group of one rank is not turned into one of 128 between two ranks.
TEST_F(AdoptionTest, AHeaderThatChangesLaterChangesNothing) {
  const SharedMemory memory = make(7);
  const auto first = find(memory, 0);
  ASSERT_TRUE(first.is_ok());
  header_of(memory).ranks = header_of(memory).local_ranks = 128;
  header_of(memory).magic = 1;
  EXPECT_THAT(find(memory, 127).status().message(), HasSubstr("has 2 on this node"));
  EXPECT_TRUE(find(memory, 1).is_ok());
  const auto spec = adoption_.describe(first.value(), NodeInfo{});
  ASSERT_TRUE(spec.is_ok());
  EXPECT_EQ(spec.value().node_of_rank.size(), 2U);
  const EngineGroup group(spec.value(), 0, std::make_unique<PlayedServices>());
  EXPECT_EQ(group.context().layout().local_ranks, 2U);
}

TEST_F(AdoptionTest, MemoryOfAnotherSizeOrNotSealedIsRefused) {
  const ipc::Layout layout(2, 1, 2);
  auto larger = SharedMemory::create("group", layout.total + 4096).take();
  ipc::Segment::format(larger.data(), layout, 7, "dp", 0);
  EXPECT_THAT(find(larger, 0).status().message(), HasSubstr("larger"));
  auto smaller = SharedMemory::create("group", layout.total - 4096).take();
  ipc::Segment::format(smaller.data(), layout, 7, "dp", 0);
  EXPECT_FALSE(find(smaller, 0).is_ok());
  UniqueFd open(::memfd_create("group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), static_cast<off_t>(layout.total)), 0);
  EXPECT_THAT(adoption_.find({0, 0, 0}, kUser, std::move(open)).status().message(), HasSubstr("sealed"));
  EXPECT_FALSE(find(make(8), 2).is_ok()) << "no such rank";
}

TEST_F(AdoptionTest, OnlyADaemonsMemoryIsTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const SharedMemory memory = make(7);
  ASSERT_EQ(::fchown(memory.fd(), kUser, kUser), 0);
  EXPECT_THAT(find(memory, 0).status().message(), HasSubstr("not made by a daemon"));
}

TEST_F(AdoptionTest, GroupsOfOneUserAreCounted) {
  std::vector<std::shared_ptr<SharedMemory>> kept;
  Status last;
  for (uint64_t id = 1; id <= kMostAdoptedGroups + 1; ++id) {
    const SharedMemory memory = make(id);
    auto found = find(memory, 0);
    last = found.status();
    if (found.is_ok()) kept.push_back(found.value().memory);
  }
  EXPECT_EQ(kept.size(), kMostAdoptedGroups);
  EXPECT_THAT(last.message(), HasSubstr("at most"));
  EXPECT_TRUE(find(make(99'999), 0, kUser + 1).is_ok());
}

}  // namespace
}  // namespace hdt::daemon
