// verification_test.cc: whole measurements on a group of threads: right results count 0, every kind of damage
// is found.
#include <gtest/gtest.h>

#include <atomic>

#include "bench/commbench/element.h"
#include "bench/commbench/measure.h"
#include "tests/unit/bench/thread_group.h"

namespace hdt::bench {
namespace {

constexpr int kRanks = 3;
constexpr size_t kMessageBytes = 1200;

struct Found {
  int64_t out_of_place = 0;
  int64_t in_place = 0;
  int64_t here = 0;  // summed over ranks
};

Found measure(const Row& row, ThreadGroup::Fault fault = nullptr) {
  ThreadGroup group(kRanks, std::move(fault));
  Found found;
  std::atomic<int64_t> here = 0;
  group.run([&](Communicator& communicator) {
    Result<Measurer> measurer = Measurer::make(communicator, {2, 1, true}, kMessageBytes);
    ASSERT_TRUE(measurer.is_ok());
    Pattern pattern(row.type, reduces(row.what) ? std::optional(row.op) : std::nullopt, kRanks, 7,
                    kMessageBytes);
    const Result<RowResult> result = measurer.value().measure(row, pattern);
    ASSERT_TRUE(result.is_ok());
    here += measurer.value().wrong_here();
    if (communicator.rank() == 0) {
      found.out_of_place = result.value().out_of_place.wrong.value();
      if (result.value().in_place) found.in_place = result.value().in_place->wrong.value();
    }
  });
  found.here = here;
  return found;
}

class EveryCollectiveAndType : public ::testing::TestWithParam<std::tuple<Collective, hdtDataType_t>> {
 protected:
  Row row(hdtRedOp_t op) const {
    return {std::get<0>(GetParam()), kMessageBytes, std::get<1>(GetParam()), op, 1};
  }
};

TEST_P(EveryCollectiveAndType, RightResultsCountZero) {
  for (hdtRedOp_t op : all_ops()) {
    if (is_bitwise(op) && !is_integer(std::get<1>(GetParam()))) continue;
    const Found found = measure(row(op));
    EXPECT_EQ(found.out_of_place, 0) << name_of(op);
    EXPECT_EQ(found.in_place, 0) << name_of(op);
    EXPECT_EQ(found.here, 0) << name_of(op);
  }
}

TEST_P(EveryCollectiveAndType, OneWrongElementOnOneRankIsFound) {
  const Found found = measure(row(HDT_SUM), [](int rank, const Call& call) {
    // On the root, so that a reduce has a result there.
    if (rank == 1) static_cast<std::byte*>(call.recv)[5 * element_bytes(call.type)] ^= std::byte{1};
  });
  EXPECT_EQ(found.out_of_place, 1);
  EXPECT_EQ(found.in_place, has_in_place(row(HDT_SUM).what) ? 1 : 0);
  EXPECT_EQ(found.here, found.out_of_place + found.in_place);
}

TEST_P(EveryCollectiveAndType, AChangedSendBufferIsFound) {
  const Found found = measure(row(HDT_SUM), [](int rank, const Call& call) {
    auto* sent = static_cast<std::byte*>(const_cast<void*>(call.send));
    const size_t bytes = call.count * element_bytes(call.type);
    const auto* received = static_cast<std::byte*>(call.recv);
    const bool out_of_place = received + bytes * kRanks <= sent || sent + bytes * kRanks <= received;
    if (rank == 2 && out_of_place) sent[0] = std::byte{0x11};
  });
  EXPECT_GE(found.out_of_place, 1);
}

TEST_P(EveryCollectiveAndType, WritingPastTheEndIsFound) {
  const size_t element = element_bytes(row(HDT_SUM).type);
  const Shape shape = shape_of(row(HDT_SUM), kRanks);
  const Found found = measure(row(HDT_SUM), [&](int rank, const Call& call) {
    // In place a reduce-scatter's receive buffer is inside the full one: the last rank's ends with it.
    if (rank == kRanks - 1)
      static_cast<std::byte*>(call.recv)[shape.recv_elements * element] = std::byte{0x11};
  });
  EXPECT_GE(found.out_of_place, 1);
  if (has_in_place(row(HDT_SUM).what)) {
    EXPECT_GE(found.in_place, 1);
  }
}

std::vector<Collective> collectives_with_data() {
  std::vector<Collective> chosen;
  for (Collective what : all_collectives()) {
    if (moves_data(what)) chosen.push_back(what);
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCollectiveAndType,
                         ::testing::Combine(::testing::ValuesIn(collectives_with_data()),
                                            ::testing::ValuesIn(all_types())),
                         [](const auto& chosen) {
                           return std::string(name_of(std::get<0>(chosen.param))) + "_" +
                                  name_of(std::get<1>(chosen.param));
                         });

TEST(Verification, AReduceThatWritesElsewhereThanTheRootIsFound) {
  const Found found =
      measure({Collective::kReduce, kMessageBytes, HDT_FLOAT32, HDT_SUM, 1}, [](int rank, const Call& call) {
        if (rank == 0) static_cast<float*>(call.recv)[3] += 1;
      });
  EXPECT_EQ(found.out_of_place, 1);
  EXPECT_EQ(found.in_place, 1);
}

TEST(Verification, AnElementNeverWrittenIsFound) {
  // Element 4 stays as it was before the call.
  ThreadGroup group(1);
  group.run([](Communicator& communicator) {
    Result<Buffer> buffer = Buffer::make(communicator, 64);
    ASSERT_TRUE(buffer.is_ok());
    buffer.value().reset(64);
    EXPECT_EQ(buffer.value().count_touched(0, 16, 4), 0u);
    buffer.value().data()[17] = std::byte{0};
    EXPECT_EQ(buffer.value().count_touched(0, 16, 4), 1u);
    EXPECT_EQ(buffer.value().count_broken_guards(), 0u);
    buffer.value().data()[-1] = std::byte{0};
    buffer.value().data()[64] = std::byte{0};
    EXPECT_EQ(buffer.value().count_broken_guards(), 2u);
  });
}

}  // namespace
}  // namespace hdt::bench
