// deterministic_test.cc: with hdtCommConfig_t.deterministic, reductions have the bits of one fixed order,
// wherever the ranks are and however a message is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "collectives/kernels.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

using collectives::DataType;
using Bytes = std::vector<std::byte>;

constexpr int kRanks = 4;
constexpr uint32_t kSeed = 20261121;
constexpr size_t kCounts[] = {0, 1, 3, 1'001, 300'007};

// Any bits but those of NaN and infinity would do; sums of these depend on their order.
Bytes contribution(DataType type, int rank, size_t count) {
  std::mt19937 random(kSeed + static_cast<uint32_t>(rank));
  const size_t width = collectives::type_size(type);
  Bytes bytes(count * width);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint32_t)) {
    const auto word = static_cast<uint32_t>(random());
    std::memcpy(&bytes[i], &word, std::min(sizeof word, bytes.size() - i));
  }
  // The upper byte's exponent bits away from all ones: finite, and their sums, too.
  for (size_t i = width - 1; i < bytes.size(); i += width) bytes[i] &= std::byte{0xBB};
  return bytes;
}

// The definition: from left to right in the order of ranks.
Bytes in_rank_order(DataType type, hdtRedOp_t op, size_t count) {
  std::vector<Bytes> contributions;
  std::vector<const void*> sources;
  for (int rank = 0; rank < kRanks; ++rank) contributions.push_back(contribution(type, rank, count));
  for (const Bytes& one : contributions) sources.push_back(one.data());
  Bytes result(count * collectives::type_size(type));
  void* const results[] = {result.data()};
  collectives::reduce(type, static_cast<collectives::ReduceOp>(op), sources, results, count);
  if (op == HDT_AVG) collectives::copy_divided(type, result.data(), result.data(), count, kRanks);
  return result;
}

class Deterministic : public ::testing::TestWithParam<Placement> {
 protected:
  // A deterministic group over all ranks. All have it then: a rank whose split has not returned yet would be
  // told there of what fails the group.
  static hdtComm_t split(const Rank& self) {
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    config.deterministic = 1;
    hdtComm_t made = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, 0, 0, &made, &config));
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    return made;
  }
};

TEST_P(Deterministic, EveryReductionHasTheBitsOfTheOrderOfRanks) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    hdtComm_t comm = split(self);
    for (const hdtDataType_t type : {HDT_FLOAT32, HDT_FLOAT64, HDT_BFLOAT16, HDT_FLOAT16, HDT_FLOAT8E4M3}) {
      const auto internal = static_cast<DataType>(type);
      const size_t width = hdtTypeSize(type);
      for (const hdtRedOp_t op : {HDT_SUM, HDT_AVG}) {
        for (const size_t count : kCounts) {
          if (count > 1'001 && (type != HDT_FLOAT32 || op != HDT_SUM))
            continue;  // one that takes several rounds
          const size_t all = count * kRanks;
          const Bytes expected = in_rank_order(internal, op, all);
          const Bytes mine = contribution(internal, self.rank, all);
          Bytes recv = mine;
          HDT_EXPECT(hdtAllReduce(recv.data(), recv.data(), all, type, op, comm, nullptr));
          ASSERT_EQ(recv, expected) << "allreduce in place";
          std::fill(recv.begin(), recv.end(), std::byte{0});
          const int root = static_cast<int>(count) % kRanks;
          void* const at_root = self.rank == root ? recv.data() : nullptr;
          HDT_EXPECT(hdtReduce(mine.data(), at_root, all, type, op, root, comm, nullptr));
          if (self.rank == root) {
            ASSERT_EQ(recv, expected) << "reduce";
          }
          hdtRequest_t request = nullptr;
          HDT_EXPECT(hdtReduceScatter(mine.data(), recv.data(), count, type, op, comm, &request));
          HDT_EXPECT(hdtWait(&request, -1));
          ASSERT_TRUE(std::equal(
              recv.begin(), recv.begin() + static_cast<ptrdiff_t>(count * width),
              expected.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(self.rank) * count * width)))
              << "reduce-scatter";
        }
      }
    }
    HDT_EXPECT(hdtCommDestroy(comm));
  });
}

TEST_P(Deterministic, CallsInFlightAndOtherOperationsKeepApart) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    hdtComm_t comm = split(self);
    constexpr size_t kCalls = 20, kCount = 5'003;
    const Bytes expected = in_rank_order(DataType::kFloat32, HDT_SUM, kCount);
    const Bytes mine = contribution(DataType::kFloat32, self.rank, kCount);
    std::vector<Bytes> results(kCalls, Bytes(mine.size()));
    std::vector<int64_t> gathered(kCalls * kRanks, -1), own(kCalls);
    std::vector<hdtRequest_t> requests(2 * kCalls, nullptr);
    for (size_t i = 0; i < kCalls; ++i) {
      own[i] = static_cast<int64_t>(i) * 10 + self.rank;
      HDT_EXPECT(
          hdtAllReduce(mine.data(), results[i].data(), kCount, HDT_FLOAT32, HDT_SUM, comm, &requests[i]));
      HDT_EXPECT(hdtAllGather(&own[i], &gathered[i * kRanks], 1, HDT_INT64, comm, &requests[kCalls + i]));
    }
    for (hdtRequest_t& request : requests) HDT_EXPECT(hdtWait(&request, -1));
    for (const Bytes& result : results) ASSERT_EQ(result, expected);
    for (size_t i = 0; i < gathered.size(); ++i) {
      ASSERT_EQ(gathered[i], static_cast<int64_t>(i / kRanks * 10 + i % kRanks));
    }
    HDT_EXPECT(hdtCommDestroy(comm));
  });
}

TEST_P(Deterministic, DifferentCallsAreAMismatchOnAllRanks) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    hdtComm_t comm = split(self);
    float value = 1, result = 0;
    const hdtRedOp_t op = self.rank == 1 ? HDT_MAX : HDT_SUM;
    EXPECT_EQ(hdtAllReduce(&value, &result, 1, HDT_FLOAT32, op, comm, nullptr), HDT_ERR_MISMATCH);
    EXPECT_EQ(hdtAllReduce(&value, &result, 1, HDT_FLOAT32, HDT_SUM, comm, nullptr), HDT_ERR_MISMATCH);
    HDT_EXPECT(hdtCommDestroy(comm));
  });
}

TEST_P(Deterministic, AnAbortEndsCallsOnAllRanks) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    hdtComm_t comm = split(self);
    HDT_EXPECT(
        hdtBarrier(self.comm, nullptr));  // else the abort may meet a rank that is still making its group
    float value = 1, result = 0;
    if (self.rank == 2) {
      HDT_EXPECT(hdtCommAbort(comm));
    } else {
      EXPECT_EQ(hdtAllReduce(&value, &result, 1, HDT_FLOAT32, HDT_SUM, comm, nullptr), HDT_ERR_ABORTED)
          << hdtGetLastError();
    }
    HDT_EXPECT(hdtCommDestroy(comm));
  });
}

INSTANTIATE_TEST_SUITE_P(All, Deterministic,
                         ::testing::Values(Placement{0, 0, 0, 0}, Placement{0, 0, 1, 1},
                                           Placement{0, 1, 0, 1}, Placement{1, 0, 0, 0},
                                           Placement{0, 1, 2, 0}),
                         [](const auto& param) { return name_of(param.param); });

}  // namespace
}  // namespace hdt::testing
