// any_source_test.cc: hdtRecvAny among sends, other receives and collectives, over every shape of group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

// The number of a message among those of its sender stands in its first element, the sender in all others.
std::vector<int32_t> message_of(int from, int number, size_t count) {
  std::vector<int32_t> data(count, from);
  data[0] = number;
  return data;
}

class AnySource : public ::testing::TestWithParam<Placement> {};

// Every rank sends to every rank, itself too, and receives all of it from whoever comes first: by requests,
// in a group of calls, or one call after the other.
TEST_P(AnySource, EveryoneSendsToEveryone) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Nodes::instance().run(GetParam(), [seed](Rank& self) {
    std::mt19937 own(static_cast<unsigned>(seed) + static_cast<unsigned>(self.rank));
    const auto ranks = static_cast<size_t>(self.ranks);
    int round = 0;
    for (const size_t count : {size_t{1}, size_t{4'097}, size_t{100'001}}) {
      for (int how = 0; how < 3; ++how, ++round) {
        constexpr int kEach = 3;
        const size_t messages = ranks * kEach;
        std::vector<std::vector<int32_t>> out;
        std::vector<std::vector<int32_t>> in(messages, std::vector<int32_t>(count, -1));
        std::vector<int> sources(messages, -1);
        std::vector<hdtRequest_t> sends(messages);
        std::vector<hdtRequest_t> receives(messages);
        for (int number = 0; number < kEach; ++number) out.push_back(message_of(self.rank, number, count));
        for (size_t m = 0; m < messages; ++m) {
          HDT_EXPECT(hdtSend(out[m / ranks].data(), count, HDT_INT32, static_cast<int>(m % ranks), self.comm,
                             &sends[m]));
        }
        if (how == 0) HDT_EXPECT(hdtGroupStart());
        for (size_t m = 0; m < messages; ++m) {
          hdtRequest_t* const request = how == 1 ? &receives[m] : nullptr;
          HDT_EXPECT(hdtRecvAny(in[m].data(), count, HDT_INT32, &sources[m], self.comm, request));
        }
        if (how == 0) HDT_EXPECT(hdtGroupEnd());
        std::shuffle(sends.begin(), sends.end(), own);
        for (hdtRequest_t& request : sends) HDT_EXPECT(hdtWait(&request, -1));
        for (hdtRequest_t& request : receives) HDT_EXPECT(hdtWait(&request, -1));
        // In the order of submission, so the messages of each rank come in the order of their numbers.
        std::vector<int> next(ranks, 0);
        for (size_t m = 0; m < messages; ++m) {
          ASSERT_GE(sources[m], 0);
          ASSERT_LT(sources[m], self.ranks);
          ASSERT_EQ(in[m], message_of(sources[m], next[static_cast<size_t>(sources[m])]++, count));
        }
        // Without it a message of the next round could come in this one.
        HDT_EXPECT(hdtBarrier(self.comm, nullptr));
      }
    }
  });
}

// Requests from any rank and from given ones in a random order, beside collectives. A message goes to the
// first receive that takes it.
TEST_P(AnySource, AmongOtherReceivesAndCollectives) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Nodes::instance().run(GetParam(), [seed](Rank& self) {
    if (self.ranks == 1) return;
    std::mt19937 random(static_cast<unsigned>(seed));
    constexpr int kEach = 30;
    constexpr size_t kCount = 1'001;
    std::vector<int64_t> sums(kEach, 1);
    std::vector<hdtRequest_t> calls(kEach);
    if (self.rank > 0) {
      for (int number = 0; number < kEach; ++number) {
        const auto data = message_of(self.rank, number, kCount);
        HDT_EXPECT(hdtSend(data.data(), kCount, HDT_INT32, 0, self.comm, nullptr));
        const auto n = static_cast<size_t>(number);
        HDT_EXPECT(hdtAllReduce(&sums[n], &sums[n], 1, HDT_INT64, HDT_SUM, self.comm, &calls[n]));
      }
    } else {
      // Receives that name a rank come first: one from any rank could take a message that they wait for.
      struct Receive {
        int source;
        std::vector<int32_t> data = std::vector<int32_t>(kCount, -1);
        hdtRequest_t request = nullptr;
      };
      std::vector<Receive> receives;
      const int named = 10;
      for (int number = 0; number < named; ++number) {
        for (int rank = 1; rank < self.ranks; ++rank) receives.push_back({rank});
      }
      std::shuffle(receives.begin(), receives.end(), random);
      for (int more = (kEach - named) * (self.ranks - 1); more > 0; --more) receives.push_back({-1});
      for (Receive& receive : receives) {
        if (receive.source < 0) {
          HDT_EXPECT(hdtRecvAny(receive.data.data(), kCount, HDT_INT32, &receive.source, self.comm,
                                &receive.request));
        } else {
          HDT_EXPECT(
              hdtRecv(receive.data.data(), kCount, HDT_INT32, receive.source, self.comm, &receive.request));
        }
      }
      for (size_t n = 0; n < kEach; ++n)
        HDT_EXPECT(hdtAllReduce(&sums[n], &sums[n], 1, HDT_INT64, HDT_SUM, self.comm, &calls[n]));
      std::vector<int> next(static_cast<size_t>(self.ranks), 0);
      for (Receive& receive : receives) {
        HDT_EXPECT(hdtWait(&receive.request, -1));
        ASSERT_GT(receive.source, 0);
        ASSERT_EQ(receive.data,
                  message_of(receive.source, next[static_cast<size_t>(receive.source)]++, kCount));
      }
    }
    for (hdtRequest_t& request : calls) HDT_EXPECT(hdtWait(&request, -1));
    EXPECT_EQ(sums, std::vector<int64_t>(kEach, self.ranks));
  });
}

TEST_P(AnySource, AWaitThatIsOverLeavesItPending) {
  Nodes::instance().run(GetParam(), [](Rank& self) {
    int32_t value = 0;
    int source = -1;
    hdtRequest_t request = nullptr;
    const int last = self.ranks - 1;
    if (self.rank == 0) {
      EXPECT_EQ(hdtRecvAny(nullptr, 1, HDT_INT32, &source, self.comm, &request), HDT_ERR_INVALID_ARGUMENT);
      const auto unknown = static_cast<hdtDataType_t>(HDT_FLOAT8E5M2 + 1);
      EXPECT_EQ(hdtRecvAny(&value, 1, unknown, &source, self.comm, &request), HDT_ERR_INVALID_ARGUMENT);
      EXPECT_EQ(request, nullptr);
      HDT_EXPECT(hdtRecvAny(&value, 1, HDT_INT32, &source, self.comm, &request));
      EXPECT_EQ(hdtTest(&request), HDT_IN_PROGRESS);
      EXPECT_EQ(hdtWait(&request, 5), HDT_ERR_TIMEOUT);
      ASSERT_NE(request, nullptr);
      EXPECT_EQ(source, -1);
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    const int32_t seven = 7;
    hdtRequest_t sent = nullptr;
    if (self.rank == last) HDT_EXPECT(hdtSend(&seven, 1, HDT_INT32, 0, self.comm, &sent));
    HDT_EXPECT(hdtWait(&request, -1));
    HDT_EXPECT(hdtWait(&sent, -1));
    if (self.rank == 0) {
      EXPECT_EQ(source, last);
      EXPECT_EQ(value, 7);
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

// Both fail the group on all ranks, as with hdtRecv.
TEST_P(AnySource, OfAnotherSizeOrPastTheDeadline) {
  Nodes::instance().run(GetParam(), [](Rank& self) {
    if (self.ranks == 1) return;
    for (const bool late : {false, true}) {
      hdtComm_t comm = nullptr;
      HDT_EXPECT(hdtCommSplit(self.comm, 0, self.rank, &comm, nullptr));
      // A split that has not ended on all ranks ends with the failure of the group that it makes.
      HDT_EXPECT(hdtBarrier(self.comm, nullptr));
      int32_t data[2] = {};
      int source = -1;
      if (self.rank == 0) {
        if (late) HDT_EXPECT(hdtCommSetTimeout(comm, 300));
        EXPECT_EQ(hdtRecvAny(data, 1, HDT_INT32, &source, comm, nullptr),
                  late ? HDT_ERR_TIMEOUT : HDT_ERR_MISMATCH);
        EXPECT_THAT(hdtGetLastError(),
                    HasSubstr(late ? "any rank" : "sends 8 bytes, the receiver expects 4"));
        EXPECT_EQ(source, -1);
        EXPECT_EQ(hdtRecvAny(data, 1, HDT_INT32, &source, comm, nullptr),
                  late ? HDT_ERR_TIMEOUT : HDT_ERR_MISMATCH);
      } else if (self.rank == 1 && !late) {
        (void)hdtSend(data, 2, HDT_INT32, 0, comm, nullptr);
      }
      HDT_EXPECT(hdtBarrier(self.comm, nullptr));
      HDT_EXPECT(hdtCommDestroy(comm));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, AnySource,
                         ::testing::Values(Placement{0}, Placement{0, 0, 0}, Placement{0, 1},
                                           Placement{0, 1, 0, 1}, Placement{0, 1, 2}),
                         [](const auto& shape) { return name_of(shape.param); });

}  // namespace
}  // namespace hdt::testing
