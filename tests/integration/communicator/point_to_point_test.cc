// point_to_point_test.cc: sends and receives, also crossing ones, of all sizes and between all pairs.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

constexpr size_t kMessageSizes[] = {0, 1, 4097, 300'001, 2'000'003};

int32_t value(int from, int to, size_t message, size_t index) {
  return static_cast<int32_t>(index * 31 + static_cast<size_t>(from) * 1009 + static_cast<size_t>(to) * 7 +
                              message);
}

std::vector<int32_t> message_of(int from, int to, size_t message, size_t count) {
  std::vector<int32_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = value(from, to, message, i);
  return data;
}

class Pairs : public ::testing::TestWithParam<Placement> {};

TEST_P(Pairs, AllToAllInAGroup) {
  Nodes::instance().run(GetParam(), [](Rank& self) {
    constexpr size_t kCount = 50'001;
    std::vector<std::vector<int32_t>> out;
    std::vector<std::vector<int32_t>> in;
    for (int peer = 0; peer < self.ranks; ++peer) {
      out.push_back(message_of(self.rank, peer, 0, kCount));
      in.emplace_back(kCount);
    }
    HDT_EXPECT(hdtGroupStart());
    for (int peer = 0; peer < self.ranks; ++peer) {
      const auto p = static_cast<size_t>(peer);
      HDT_EXPECT(hdtSend(out[p].data(), kCount, HDT_INT32, peer, self.comm, nullptr));
      HDT_EXPECT(hdtRecv(in[p].data(), kCount, HDT_INT32, peer, self.comm, nullptr));
    }
    HDT_EXPECT(hdtGroupEnd());
    for (int peer = 0; peer < self.ranks; ++peer) {
      EXPECT_EQ(in[static_cast<size_t>(peer)], message_of(peer, self.rank, 0, kCount)) << "from " << peer;
    }
  });
}

TEST_P(Pairs, RingOfCrossingMessagesOfAllSizes) {
  Nodes::instance().run(GetParam(), [](Rank& self) {
    const int next = (self.rank + 1) % self.ranks;
    const int previous = (self.rank + self.ranks - 1) % self.ranks;
    for (size_t number = 0; number < std::size(kMessageSizes); ++number) {
      const auto out = message_of(self.rank, next, number, kMessageSizes[number]);
      std::vector<int32_t> in(kMessageSizes[number]);
      HDT_EXPECT(hdtGroupStart());
      HDT_EXPECT(hdtGroupStart());  // groups nest
      HDT_EXPECT(hdtSend(out.data(), out.size(), HDT_INT32, next, self.comm, nullptr));
      HDT_EXPECT(hdtGroupEnd());
      HDT_EXPECT(hdtRecv(in.data(), in.size(), HDT_INT32, previous, self.comm, nullptr));
      HDT_EXPECT(hdtGroupEnd());
      EXPECT_EQ(in, message_of(previous, self.rank, number, kMessageSizes[number]));
    }
  });
}

TEST_P(Pairs, ManyMessagesKeepTheirOrderBesideCollectives) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Nodes::instance().run(GetParam(), [seed](Rank& self) {
    std::mt19937 random(seed);
    constexpr size_t kMessages = 60;
    std::vector<size_t> sizes(kMessages);
    for (size_t& size : sizes) size = random() % (size_t{1} << random() % 15);
    const int next = (self.rank + 1) % self.ranks;
    const int previous = (self.rank + self.ranks - 1) % self.ranks;
    std::vector<std::vector<int32_t>> out;
    std::vector<std::vector<int32_t>> in;
    std::vector<hdtRequest_t> requests(3 * kMessages);
    std::vector<int64_t> sums(kMessages, 1);
    for (size_t m = 0; m < kMessages; ++m) {
      out.push_back(message_of(self.rank, next, m, sizes[m]));
      in.emplace_back(sizes[m]);
    }
    for (size_t m = 0; m < kMessages; ++m) {
      HDT_EXPECT(hdtSend(out[m].data(), sizes[m], HDT_INT32, next, self.comm, &requests[3 * m]));
      HDT_EXPECT(hdtAllReduce(&sums[m], &sums[m], 1, HDT_INT64, HDT_SUM, self.comm, &requests[3 * m + 1]));
      HDT_EXPECT(hdtRecv(in[m].data(), sizes[m], HDT_INT32, previous, self.comm, &requests[3 * m + 2]));
    }
    for (auto& request : requests) HDT_EXPECT(hdtWait(&request, -1));
    for (size_t m = 0; m < kMessages; ++m) {
      EXPECT_EQ(in[m], message_of(previous, self.rank, m, sizes[m])) << "message " << m;
      EXPECT_EQ(sums[m], self.ranks);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Pairs,
                         ::testing::Values(Placement{0}, Placement{0, 0, 0}, Placement{0, 1},
                                           Placement{0, 1, 0, 1}, Placement{0, 1, 2}),
                         [](const auto& shape) { return name_of(shape.param); });

TEST(PointToPoint, EndOfAGroupThatWasNotStartedIsWrongUsage) {
  EXPECT_EQ(hdtGroupEnd(), HDT_ERR_INVALID_USAGE);
  HDT_EXPECT(hdtGroupStart());
  HDT_EXPECT(hdtGroupEnd());
}

}  // namespace
}  // namespace hdt::testing
