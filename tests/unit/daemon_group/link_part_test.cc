// link_part_test.cc: how much of its measured rates a link has, by its NICs.
#include "daemon/group/link_part.h"

#include <gtest/gtest.h>

#include <vector>

namespace hdt::daemon {
namespace {

using transport::RailStatus;

RailStatus rail(const std::string& nic, bool up = true, uint64_t alone_bytes_s = 0, uint64_t gbits_s = 0,
                double part = 1) {
  RailStatus status;
  status.state = up ? RailStatus::State::kUp : RailStatus::State::kDown;
  status.nic = nic;
  status.alone_bytes_per_second = alone_bytes_s;
  status.nic_bits_per_second = gbits_s * 1'000'000'000;
  status.nic_part = part;
  return status;
}

using Rails = std::vector<RailStatus>;

int part(const Rails& rails, const ipc::NicsOfLink& measured) { return part_of(rails, measured).value_or(0); }

TEST(LinkPart, IsTheWholeLinkWithTheNicsThatWereMeasured) {
  const Rails two{rail("a"), rail("b")};
  EXPECT_EQ(count_nics(two), (ipc::NicsOfLink{2, 0, 0}));
  EXPECT_EQ(part(two, count_nics(two)), ipc::kWholeLink);
  EXPECT_EQ(part(two, {}), ipc::kWholeLink);
}

TEST(LinkPart, WithoutANicIsWhatTheOthersCarriedLately) {
  EXPECT_EQ(part({rail("a"), rail("b", false)}, {2, 0, 0}), 8);
  EXPECT_EQ(part({rail("a", true, 300), rail("b", false, 100)}, {2, 0, 0}), 12);
  EXPECT_EQ(part({rail("a", true, 300), rail("b", false, 0)}, {2, 0, 0}), 8);
  // By a daemon that was started again and has never seen the NIC.
  EXPECT_EQ(part({rail("a", true, 300)}, {2, 0, 0}), 8);
  EXPECT_EQ(part({rail("a", false), rail("b", false)}, {2, 0, 0}), 0);
}

// A node with fewer NICs than its peer has several rails on each.
TEST(LinkPart, CountsNicsAndNotRails) {
  const Rails rails{rail("a"), rail("b"), rail("a", false)};
  EXPECT_EQ(count_nics(rails), (ipc::NicsOfLink{2, 0, 0}));
  EXPECT_EQ(part(rails, {2, 0, 0}), 16);
  EXPECT_EQ(part({rail("a", true, 100), rail("b", false, 100), rail("a", true, 200)}, {2, 0, 0}), 12);
}

TEST(LinkPart, OfOtherNicsIsByTheirSpeedsOrTheirNumber) {
  const Rails measured{rail("a", true, 0, 10), rail("b", true, 0, 10)};
  EXPECT_EQ(count_nics(measured), (ipc::NicsOfLink{2, 20'000, 0}));
  EXPECT_EQ(part({rail("c", true, 0, 10)}, count_nics(measured)), 8);
  EXPECT_EQ(part({rail("c", true, 0, 25)}, count_nics(measured)), 20);
  EXPECT_EQ(part({rail("c", true, 0, 25), rail("d")}, count_nics(measured)), 16);
  EXPECT_EQ(part({rail("c"), rail("d"), rail("e")}, {2, 0, 0}), 24);
  // Half of twice as much.
  EXPECT_EQ(part({rail("c"), rail("d", false)}, {1, 0, 0}), 16);
}

TEST(LinkPart, HasLimits) {
  EXPECT_EQ(part({rail("a")}, {1'000, 0, 0}), 1);
  EXPECT_EQ(part({rail("a", true, 0, 400)}, {1, 1'000, 0}), ipc::kLargestPart);
  EXPECT_EQ(count_nics(Rails{rail("a", true, 0, UINT64_MAX / 1'000'000'000)}).mbits_s, UINT32_MAX);
}

TEST(LinkPart, IsLessWhereAnotherClassHasAShareOfANic) {
  EXPECT_EQ(part({rail("a", true, 0, 0, 0.5)}, {1, 0, 0}), 8);
  EXPECT_EQ(part({rail("a", true, 0, 0, 0.5), rail("b")}, {2, 0, 0}), 12);
  EXPECT_EQ(part({rail("a", true, 300, 0, 0.5), rail("b", true, 100)}, {2, 0, 0}), 10);
  EXPECT_EQ(part({rail("a", true, 0, 0, 0.5), rail("b", false)}, {2, 0, 0}), 4);
}

TEST(LinkPart, FollowsNothingButNicsAndShares) {
  Rails rails{rail("a", true, 300), rail("b", true, 100)};
  const LinkNics before = nics_of(rails);
  rails[0].alone_bytes_per_second = 30;
  rails[0].bytes_out = 5;
  rails.push_back(rail("a", false));  // NIC a still has a rail
  EXPECT_EQ(nics_of(rails), before);
  rails[1].nic_part = 0.5;
  EXPECT_NE(nics_of(rails), before);
  rails[1] = rail("b", false);
  EXPECT_NE(nics_of(rails), before);
}

}  // namespace
}  // namespace hdt::daemon
