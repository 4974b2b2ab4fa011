// composed_test.cc: gather, scatter, the all-to-alls, the operations with a count for every rank, and
// sendrecv, over every shape of group, compared element for element.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

// The value that rank `from` has for rank `to` at index i.
int64_t value(int from, int to, size_t i) {
  return from * 1'000'003LL + to * 10'007LL + static_cast<int64_t>(i);
}

class Composed : public ::testing::TestWithParam<Placement> {
 protected:
  static constexpr size_t kCounts[] = {0, 1, 1'001, 50'003};
};

TEST_P(Composed, GatherAndScatter) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    for (const size_t count : kCounts) {
      for (int root = 0; root < self.ranks; ++root) {
        for (const bool in_place : {false, true}) {
          const bool is_root = self.rank == root;
          const size_t all = is_root ? count * static_cast<size_t>(self.ranks) : 0;
          std::vector<int64_t> mine(count), gathered(all, -1), back(count, -1);
          for (size_t i = 0; i < count; ++i) mine[i] = value(self.rank, root, i);
          int64_t* own = gathered.data() + static_cast<size_t>(self.rank) * count;
          if (is_root && in_place) std::copy(mine.begin(), mine.end(), own);
          HDT_EXPECT(hdtGather(is_root && in_place ? own : mine.data(), gathered.data(), count, HDT_INT64,
                               root, self.comm, nullptr));
          for (size_t i = 0; i < all; ++i) {
            ASSERT_EQ(gathered[i], value(static_cast<int>(i / count), root, i % count))
                << "gather, element " << i;
          }
          int64_t* to = is_root && in_place ? own : back.data();
          HDT_EXPECT(hdtScatter(gathered.data(), to, count, HDT_INT64, root, self.comm, nullptr));
          ASSERT_TRUE(std::equal(mine.begin(), mine.end(), to)) << "scatter gives back what was gathered";
        }
      }
    }
  });
}

// Each rank's contributions times its rank + 2, through every call that reduces.
TEST_P(Composed, PreMulSum) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    const int32_t factor = self.rank + 2;
    hdtRedOp_t op{};
    HDT_EXPECT(hdtRedOpCreatePreMulSum(&op, &factor, HDT_INT32, self.comm));
    for (const size_t count : kCounts) {
      const size_t all = count * static_cast<size_t>(self.ranks);
      std::vector<int32_t> send(all), recv(all, -1), expected(all, 0);
      for (int rank = 0; rank < self.ranks; ++rank) {
        for (size_t i = 0; i < all; ++i) {
          const auto element = static_cast<int32_t>(i % 1'000) + rank;
          if (rank == self.rank) send[i] = element;
          expected[i] += element * (rank + 2);
        }
      }
      const std::vector<int32_t> original = send;
      HDT_EXPECT(hdtAllReduce(send.data(), recv.data(), all, HDT_INT32, op, self.comm, nullptr));
      ASSERT_EQ(recv, expected) << "allreduce";
      hdtRequest_t request = nullptr;
      std::fill(recv.begin(), recv.end(), -1);
      HDT_EXPECT(hdtReduce(send.data(), recv.data(), all, HDT_INT32, op, 0, self.comm, &request));
      HDT_EXPECT(hdtWait(&request, -1));
      if (self.rank == 0) {
        ASSERT_EQ(recv, expected) << "reduce";
      }
      const size_t own = static_cast<size_t>(self.rank) * count;
      HDT_EXPECT(hdtReduceScatter(send.data(), recv.data(), count, HDT_INT32, op, self.comm, nullptr));
      ASSERT_TRUE(std::equal(recv.begin(), recv.begin() + static_cast<ptrdiff_t>(count),
                             expected.begin() + static_cast<ptrdiff_t>(own)))
          << "reduce-scatter";
      const std::vector<size_t> counts(static_cast<size_t>(self.ranks), count);
      HDT_EXPECT(
          hdtReduceScatterV(send.data(), recv.data(), counts.data(), HDT_INT32, op, self.comm, nullptr));
      ASSERT_TRUE(std::equal(recv.begin(), recv.begin() + static_cast<ptrdiff_t>(count),
                             expected.begin() + static_cast<ptrdiff_t>(own)))
          << "reduce-scatterv";
      ASSERT_EQ(send, original) << "sendbuf is not changed";
    }
    float value = 0;
    EXPECT_EQ(hdtAllReduce(&value, &value, 1, HDT_FLOAT32, op, self.comm, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hdtGetLastError()).find("made for int32, used with float32"), std::string::npos);
    HDT_EXPECT(hdtRedOpDestroy(op, self.comm));
    EXPECT_EQ(hdtRedOpDestroy(op, self.comm), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtAllReduce(&value, &value, 1, HDT_INT32, op, self.comm, nullptr), HDT_ERR_INVALID_ARGUMENT);
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

// Wrong on this rank alone, whatever the call, also for the number that only ranks use among themselves.
TEST_P(Composed, BitwiseReductionsOfFloatsAreRefused) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    std::vector<float> data(static_cast<size_t>(self.ranks), 1);
    const std::vector<size_t> counts(data.size(), 1);
    for (const hdtRedOp_t op : {HDT_BAND, HDT_BOR, HDT_BXOR}) {
      for (const hdtDataType_t type : {HDT_FLOAT32, HDT_FLOAT16, HDT_BFLOAT16, HDT_FLOAT8E4M3}) {
        const auto refused = [](hdtResult_t result) {
          EXPECT_EQ(result, HDT_ERR_INVALID_ARGUMENT);
          EXPECT_NE(std::string(hdtGetLastError()).find("bitwise reductions combine integers only"),
                    std::string::npos)
              << hdtGetLastError();
        };
        void* const at = data.data();
        hdtRequest_t request = nullptr;
        refused(hdtAllReduce(at, at, 1, type, op, self.comm, nullptr));
        refused(hdtAllReduce(at, at, 0, type, op, self.comm, &request));
        refused(hdtReduce(at, at, 1, type, op, 0, self.comm, nullptr));
        refused(hdtReduceScatter(at, at, 1, type, op, self.comm, nullptr));
        refused(hdtReduceScatterV(at, at, counts.data(), type, op, self.comm, nullptr));
        EXPECT_EQ(request, nullptr);
      }
    }
    const auto internal = static_cast<hdtRedOp_t>(HDT_AVG + 1);
    EXPECT_EQ(hdtAllReduce(data.data(), data.data(), 1, HDT_INT32, internal, self.comm, nullptr),
              HDT_ERR_INVALID_ARGUMENT);
    uint16_t bits = static_cast<uint16_t>(1 << self.rank);
    HDT_EXPECT(hdtAllReduce(&bits, &bits, 1, HDT_UINT16, HDT_BOR, self.comm, nullptr));
    EXPECT_EQ(bits, (1 << self.ranks) - 1);
    const std::vector<uint8_t> whole(counts.size(), static_cast<uint8_t>(1 << self.rank));
    uint8_t part = 0;
    HDT_EXPECT(
        hdtReduceScatterV(whole.data(), &part, counts.data(), HDT_UINT8, HDT_BXOR, self.comm, nullptr));
    EXPECT_EQ(part, (1 << self.ranks) - 1);
  });
}

TEST_P(Composed, AllToAll) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    for (const size_t count : kCounts) {
      for (const bool in_place : {false, true}) {
        const size_t all = count * static_cast<size_t>(self.ranks);
        std::vector<int64_t> send(all), recv(all, -1);
        for (size_t i = 0; i < all; ++i) send[i] = value(self.rank, static_cast<int>(i / count), i % count);
        if (in_place) recv = send;
        hdtRequest_t request = nullptr;
        HDT_EXPECT(hdtAllToAll(in_place ? recv.data() : send.data(), recv.data(), count, HDT_INT64, self.comm,
                               in_place ? &request : nullptr));
        HDT_EXPECT(hdtWait(&request, -1));
        for (size_t i = 0; i < all; ++i) {
          ASSERT_EQ(recv[i], value(static_cast<int>(i / count), self.rank, i % count)) << "element " << i;
        }
      }
    }
  });
}

// Elements from rank to rank: some pairs exchange nothing.
size_t count_between(int from, int to) { return static_cast<size_t>((from * 5 + to * 3) % 4) * 777; }

TEST_P(Composed, AllToAllV) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    const auto ranks = static_cast<size_t>(self.ranks);
    std::vector<size_t> sendcounts, senddispls, recvcounts, recvdispls;
    size_t sent = 3, received = 5;  // a gap before each block
    for (int peer = 0; peer < self.ranks; ++peer) {
      sendcounts.push_back(count_between(self.rank, peer));
      recvcounts.push_back(count_between(peer, self.rank));
      senddispls.push_back(sent);
      recvdispls.push_back(received);
      sent += sendcounts.back() + 3;
      received += recvcounts.back() + 5;
    }
    std::vector<int64_t> send(sent, -7), recv(received, -1);
    for (size_t peer = 0; peer < ranks; ++peer) {
      for (size_t i = 0; i < sendcounts[peer]; ++i) {
        send[senddispls[peer] + i] = value(self.rank, static_cast<int>(peer), i);
      }
    }
    HDT_EXPECT(hdtAllToAllV(send.data(), sendcounts.data(), senddispls.data(), recv.data(), recvcounts.data(),
                            recvdispls.data(), HDT_INT64, self.comm, nullptr));
    std::vector<int64_t> expected(received, -1);
    for (size_t peer = 0; peer < ranks; ++peer) {
      for (size_t i = 0; i < recvcounts[peer]; ++i) {
        expected[recvdispls[peer] + i] = value(static_cast<int>(peer), self.rank, i);
      }
    }
    EXPECT_EQ(recv, expected);
  });
}

TEST_P(Composed, AllGatherVAndReduceScatterV) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    std::vector<size_t> counts, displs;
    size_t all = 0;
    for (int rank = 0; rank < self.ranks; ++rank) {
      counts.push_back(static_cast<size_t>((rank + 2) % 3) * 20'011);
      displs.push_back(all);
      all += counts.back();
    }
    const size_t mine = counts[static_cast<size_t>(self.rank)];
    std::vector<int64_t> send(mine), recv(all, -1);
    for (size_t i = 0; i < mine; ++i) send[i] = value(self.rank, 0, i);
    HDT_EXPECT(
        hdtAllGatherV(send.data(), recv.data(), counts.data(), displs.data(), HDT_INT64, self.comm, nullptr));
    for (int rank = 0; rank < self.ranks; ++rank) {
      for (size_t i = 0; i < counts[static_cast<size_t>(rank)]; ++i) {
        ASSERT_EQ(recv[displs[static_cast<size_t>(rank)] + i], value(rank, 0, i)) << "block " << rank;
      }
    }
    // Everyone now holds the same: the reduction multiplies it by the number of ranks.
    std::vector<int64_t> sum(mine, -1);
    HDT_EXPECT(
        hdtReduceScatterV(recv.data(), sum.data(), counts.data(), HDT_INT64, HDT_SUM, self.comm, nullptr));
    for (size_t i = 0; i < mine; ++i) ASSERT_EQ(sum[i], self.ranks * send[i]);
  });
}

// Blocks of several parts, odd ones, none, and all with one rank; also in place, and in shared memory.
TEST_P(Composed, CallsByCountsInParts) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    const auto ranks = static_cast<size_t>(self.ranks);
    const auto me = static_cast<size_t>(self.rank);
    std::vector<std::vector<size_t>> tries(4, std::vector<size_t>(ranks));
    for (size_t rank = 0; rank < ranks; ++rank) {
      tries[0][rank] = 150'001 + rank * 70'003;             // several parts each, of unequal lengths
      tries[1][rank] = rank == ranks / 2 ? 900'007 : 0;     // one rank has all
      tries[2][rank] = rank % 2 == 0 ? 400'000 : rank * 3;  // short ones between long ones
      tries[3][rank] = 8'000 + (rank == 0 ? 1 : 0);         // just not in parts
    }
    void* memory = nullptr;
    size_t most = 0;
    for (const auto& counts : tries) most = std::max(most, std::reduce(counts.begin(), counts.end()));
    HDT_EXPECT(hdtMemAlloc(&memory, most * sizeof(int64_t)));
    for (const auto& counts : tries) {
      const size_t all = std::reduce(counts.begin(), counts.end());
      std::vector<size_t> displs(ranks);
      std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), size_t{0});
      std::vector<int64_t> ordinary(all);
      for (int64_t* whole : {ordinary.data(), static_cast<int64_t*>(memory)}) {
        for (const bool in_place : {false, true}) {
          std::vector<int64_t> mine(counts[me]);
          for (size_t i = 0; i < mine.size(); ++i) mine[i] = value(self.rank, 0, i);
          std::fill(whole, whole + all, -1);
          if (in_place) std::copy(mine.begin(), mine.end(), whole + displs[me]);
          HDT_EXPECT(hdtAllGatherV(in_place ? whole + displs[me] : mine.data(), whole, counts.data(),
                                   displs.data(), HDT_INT64, self.comm, nullptr));
          for (size_t rank = 0; rank < ranks; ++rank) {
            for (size_t i = 0; i < counts[rank]; ++i)
              ASSERT_EQ(whole[displs[rank] + i], value(static_cast<int>(rank), 0, i)) << "block " << rank;
          }
          std::vector<int64_t> sum(counts[me], -1);
          int64_t* result = in_place ? whole + displs[me] : sum.data();
          HDT_EXPECT(hdtReduceScatterV(whole, result, counts.data(), HDT_INT64, HDT_SUM, self.comm, nullptr));
          for (size_t i = 0; i < counts[me]; ++i) ASSERT_EQ(result[i], self.ranks * mine[i]) << i;
        }
      }
    }
    HDT_EXPECT(hdtMemFree(memory));
  });
}

TEST_P(Composed, SuggestedCountsAddUpAndAreTheSameOnAllRanks) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    const auto ranks = static_cast<size_t>(self.ranks);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1'000'003}, size_t{1} << 56}) {
      for (const hdtDataType_t type : {HDT_FLOAT32, HDT_UINT8, HDT_FLOAT64}) {
        std::vector<size_t> counts(ranks, 7), others(ranks * ranks);
        HDT_EXPECT(hdtSuggestCounts(self.comm, count, type, counts.data()));
        EXPECT_EQ(std::reduce(counts.begin(), counts.end()), count);
        HDT_EXPECT(hdtAllGather(counts.data(), others.data(), ranks, HDT_UINT64, self.comm, nullptr));
        for (size_t i = 0; i < others.size(); ++i) EXPECT_EQ(others[i], counts[i % ranks]);
        // Nobody knows of links inside a node.
        if (count == 1'000'003 && std::ranges::count(GetParam(), GetParam()[0]) == self.ranks) {
          for (const size_t each : counts) EXPECT_NEAR(each, count / ranks, 1);
        }
      }
    }
    // They are what the two calls take.
    const size_t all = 300'000;
    std::vector<size_t> counts(ranks), displs(ranks);
    HDT_EXPECT(hdtSuggestCounts(self.comm, all, HDT_INT64, counts.data()));
    std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), size_t{0});
    std::vector<int64_t> send(all, self.rank + 1), sum(counts[static_cast<size_t>(self.rank)]), back(all);
    HDT_EXPECT(
        hdtReduceScatterV(send.data(), sum.data(), counts.data(), HDT_INT64, HDT_SUM, self.comm, nullptr));
    HDT_EXPECT(
        hdtAllGatherV(sum.data(), back.data(), counts.data(), displs.data(), HDT_INT64, self.comm, nullptr));
    EXPECT_EQ(back, std::vector<int64_t>(all, self.ranks * (self.ranks + 1) / 2));
  });
}

TEST_P(Composed, SendRecvRoundTheRing) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    const int next = (self.rank + 1) % self.ranks, before = (self.rank + self.ranks - 1) % self.ranks;
    std::vector<int64_t> send(300'001), recv(300'001, -1);
    for (size_t i = 0; i < send.size(); ++i) send[i] = value(self.rank, next, i);
    HDT_EXPECT(hdtSendRecv(send.data(), send.size(), next, recv.data(), recv.size(), before, HDT_INT64,
                           self.comm, nullptr));
    for (size_t i = 0; i < recv.size(); ++i) ASSERT_EQ(recv[i], value(before, self.rank, i));
  });
}

INSTANTIATE_TEST_SUITE_P(All, Composed,
                         ::testing::Values(Placement{0}, Placement{0, 0}, Placement{0, 0, 0}, Placement{0, 1},
                                           Placement{0, 1, 0, 1}, Placement{0, 0, 0, 1}, Placement{0, 1, 2}),
                         [](const auto& shape) { return name_of(shape.param); });

TEST(Composed, WrongArgumentsAreRefused) {
  Nodes::instance().run({0, 0}, [&](Rank& self) {
    size_t counts[2] = {1, 1}, displs[2] = {0, 1};
    int64_t data[4] = {};
    EXPECT_EQ(hdtGather(data, data, 1, HDT_INT64, 2, self.comm, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtScatter(nullptr, data, 1, HDT_INT64, self.rank, self.comm, nullptr),
              HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtAllToAllV(data, counts, displs, data, nullptr, displs, HDT_INT64, self.comm, nullptr),
              HDT_ERR_INVALID_ARGUMENT);
    size_t other[2] = {2, 2};
    EXPECT_EQ(hdtAllToAllV(data, counts, displs, data, other, displs, HDT_INT64, self.comm, nullptr),
              HDT_ERR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hdtGetLastError()).find("sends itself 1 elements and expects 2"),
              std::string::npos);
    EXPECT_EQ(hdtAllGatherV(data, data, counts, nullptr, HDT_INT64, self.comm, nullptr),
              HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtReduceScatterV(data, data, nullptr, HDT_INT64, HDT_SUM, self.comm, nullptr),
              HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtSendRecv(data, 1, 0, data, 1, 5, HDT_INT64, self.comm, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtSuggestCounts(self.comm, 1, HDT_INT64, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtSuggestCounts(nullptr, 1, HDT_INT64, counts), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtSuggestCounts(self.comm, 1, static_cast<hdtDataType_t>(HDT_FLOAT8E5M2 + 1), counts),
              HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(hdtSuggestCounts(self.comm, (size_t{1} << 56) + 1, HDT_INT64, counts),
              HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(counts[0], 1U) << "a call that is refused writes nothing";
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

// The first parts of the second rank's call are all of the first rank's, but for the mark of the last one.
TEST(Composed, DifferentCountsAreAMismatchAlsoIfOneIsTheBeginningOfTheOther) {
  Nodes::instance().run({0, 1}, [&](Rank& self) {
    const size_t parts = self.rank == 0 ? 2 : 3;
    const std::vector<size_t> counts = {parts * 65'536, 0}, displs = {0, parts * 65'536};
    std::vector<int64_t> send(counts[0]), recv(counts[0]);
    EXPECT_EQ(
        hdtAllGatherV(send.data(), recv.data(), counts.data(), displs.data(), HDT_INT64, self.comm, nullptr),
        HDT_ERR_MISMATCH);
    EXPECT_NE(std::string(hdtCommErrorMessage(self.comm)).find("last in a call by counts"), std::string::npos)
        << hdtCommErrorMessage(self.comm);
  });
}

}  // namespace
}  // namespace hdt::testing
