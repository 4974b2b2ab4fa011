// departed_rank_test.cc: messages with a rank that has left the group, on one node and on several. What it
// has sent is received. What it does not send or receive any more fails with that reason, long before the
// deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

void expect_lost(hdtResult_t result, const std::string& what) {
  EXPECT_EQ(result, HDT_ERR_RANK_LOST) << hdtGetLastError();
  EXPECT_THAT(std::string(hdtGetLastError()), HasSubstr(what));
}

class DepartedRank : public ::testing::TestWithParam<Placement> {
 protected:
  // Makes a second group of the same ranks. Rank 0 runs `first` in it and departs. The others run `then`, all
  // of it before one of them runs `last`, in which the group may fail.
  using Body = std::function<void(Rank& self, hdtComm_t comm)>;
  static void run(const Body& first, const Body& then, const Body& last) {
    Nodes::instance().run(GetParam(), [&](Rank& self) {
      hdtComm_t comm = nullptr;
      HDT_EXPECT(hdtCommSplit(self.comm, 0, self.rank, &comm, nullptr));
      (self.rank == 0 ? first : then)(self, comm);
      if (self.rank == 0) HDT_EXPECT(hdtCommDestroy(comm));
      HDT_EXPECT(hdtBarrier(self.comm, nullptr));
      if (self.rank != 0) {
        last(self, comm);
        HDT_EXPECT(hdtCommDestroy(comm));
      }
    });
  }
  static void nothing(Rank&, hdtComm_t) {}
};

TEST_P(DepartedRank, WhatItHasSentArrivesAndNothingMoreDoes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  // They fit into the rings, so the rank departs before they are received.
  std::vector<size_t> sizes(random() % 8);
  for (size_t& size : sizes) size = random() % 1000;
  run(
      [&](Rank& self, hdtComm_t comm) {
        for (const size_t size : sizes) {
          const std::vector<uint8_t> message(size, static_cast<uint8_t>(size));
          for (int peer = 1; peer < self.ranks; ++peer)
            HDT_EXPECT(hdtSend(message.data(), size, HDT_UINT8, peer, comm, nullptr));
        }
      },
      [&](Rank&, hdtComm_t comm) {
        for (const size_t size : sizes) {
          std::vector<uint8_t> message(size);
          HDT_EXPECT(hdtRecv(message.data(), size, HDT_UINT8, 0, comm, nullptr));
          EXPECT_EQ(message, std::vector<uint8_t>(size, static_cast<uint8_t>(size)));
        }
      },
      [&](Rank&, hdtComm_t comm) {
        uint8_t more = 0;
        // The failure that comes first counts on all ranks, whoever finds it.
        expect_lost(hdtRecv(&more, 1, HDT_UINT8, 0, comm, nullptr), "rank 0 departed from the group");
        EXPECT_THAT(std::string(hdtGetLastError()),
                    HasSubstr("without sending message " + std::to_string(sizes.size()) + " to rank "));
      });
}

// The receive is there first, and the departure ends it.
TEST_P(DepartedRank, EndsTheReceivesThatWait) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    hdtComm_t comm = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    uint8_t more = 0;
    hdtRequest_t request = nullptr;
    if (self.rank != 0) HDT_EXPECT(hdtRecv(&more, 1, HDT_UINT8, 0, comm, &request));
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    if (self.rank != 0) expect_lost(hdtWait(&request, -1), "rank 0 departed from the group");
    HDT_EXPECT(hdtCommDestroy(comm));
  });
}

TEST_P(DepartedRank, ReceivesNothingMore) {
  run(nothing, nothing, [](Rank& self, hdtComm_t comm) {
    constexpr size_t kMoreThanTheRingsHold = 32U << 20;
    const std::vector<uint8_t> message(self.rank == 1 ? kMoreThanTheRingsHold : 0);
    uint8_t more = 0;
    if (self.rank == 1) {
      expect_lost(hdtSend(message.data(), message.size(), HDT_UINT8, 0, comm, nullptr),
                  "rank 0 departed from the group");
      EXPECT_THAT(std::string(hdtGetLastError()), HasSubstr("without receiving message 0 from rank 1"));
    } else {
      expect_lost(hdtRecv(&more, 1, HDT_UINT8, 1, comm, nullptr), "rank 0 departed from the group");
    }
  });
}

TEST_P(DepartedRank, LeavesNobodyToReceiveFromAny) {
  run(
      nothing,
      [](Rank& self, hdtComm_t comm) {
        if (self.rank != 1) HDT_EXPECT(hdtSend(&self.rank, 1, HDT_INT32, 1, comm, nullptr));
      },
      [](Rank& self, hdtComm_t comm) {
        if (self.rank != 1) return;
        int source = -1;
        int32_t received = -1;
        for (int rank = 2; rank < self.ranks; ++rank) {
          HDT_EXPECT(hdtRecvAny(&received, 1, HDT_INT32, &source, comm, nullptr));
          EXPECT_EQ(received, source);
        }
        expect_lost(hdtRecvAny(&received, 1, HDT_INT32, &source, comm, nullptr),
                    "all other ranks have departed from the group");
      });
}

TEST_P(DepartedRank, IsNotMissedByOthers) {
  run(nothing, nothing, [](Rank& self, hdtComm_t comm) {
    const int next = self.rank % (self.ranks - 1) + 1;
    const int previous = (self.rank + self.ranks - 3) % (self.ranks - 1) + 1;
    int32_t received = -1;
    HDT_EXPECT(hdtSendRecv(&self.rank, 1, next, &received, 1, previous, HDT_INT32, comm, nullptr));
    EXPECT_EQ(received, previous);
  });
}

INSTANTIATE_TEST_SUITE_P(All, DepartedRank,
                         ::testing::Values(Placement{0, 0}, Placement{0, 1}, Placement{0, 0, 1},
                                           Placement{0, 1, 0, 1}, Placement{0, 1, 2}),
                         [](const auto& shape) { return name_of(shape.param); });

}  // namespace
}  // namespace hdt::testing
