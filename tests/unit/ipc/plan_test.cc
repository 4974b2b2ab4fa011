// plan_test.cc: how calls are cut, and the order of ranks in a slot.
#include "ipc/partition.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hdt::ipc {
namespace {

using collectives::Collective;
using collectives::DataType;

TEST(Partition, EveryElementIsInOneChunkThatFits) {
  const Layout layout(6, 2, 3);
  for (int what = 0; what < collectives::kCollectiveCount; ++what) {
    for (int type = 0; type < collectives::kDataTypeCount; ++type) {
      for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{4097}, uint64_t{1000003},
                                   (uint64_t{1} << 31) + 5}) {
        Call call;
        call.what = static_cast<Collective>(what);
        call.type = static_cast<DataType>(type);
        call.count = count;
        const Partition plan(call, layout);
        ASSERT_GE(plan.chunks(), 1U);
        if (call.what == Collective::kBarrier) {
          EXPECT_EQ(plan.chunks(), 1U);
          continue;
        }
        const uint64_t width = collectives::type_size(call.type) * (by_blocks(call.what) ? layout.ranks : 1);
        uint64_t next = 0;
        for (uint64_t i = 0; i < plan.chunks(); ++i) {
          const Chunk chunk = plan.chunk(i);
          ASSERT_EQ(chunk.offset, next);
          ASSERT_LE(chunk.elements * width, layout.chunk_bytes);
          ASSERT_TRUE(chunk.elements > 0 || count == 0);
          next += chunk.elements;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

uint64_t chunks_of(uint64_t bytes, const Layout& layout) {
  Call call;
  call.what = Collective::kAllReduce;
  call.type = DataType::kFloat32;
  call.count = bytes / 4;
  return Partition(call, layout).chunks();
}

TEST(Partition, ACallIsCutIntoMoreChunksTheMoreRanksANodeHas) {
  constexpr uint64_t kKiB = 1 << 10;
  const Layout alone(2, 2, 1), shared(4, 2, 2), uneven(3, 2, 1);
  struct Expected {
    uint64_t bytes, alone, shared;
  };
  for (const auto& [bytes, by_two, by_four] :
       {Expected{64 * kKiB, 1, 1}, Expected{128 * kKiB, 2, 2}, Expected{256 * kKiB, 2, 4},
        Expected{512 * kKiB, 2, 4}, Expected{1024 * kKiB, 4, 4}, Expected{4096 * kKiB, 8, 8}}) {
    EXPECT_EQ(chunks_of(bytes, alone), by_two) << bytes;
    EXPECT_EQ(chunks_of(bytes, shared), by_four) << bytes;
    EXPECT_EQ(chunks_of(bytes, uneven), by_four)
        << bytes << ": the other node has two ranks, and cuts likewise";
  }
}

TEST(Order, BlocksOfANodeAreContiguousWhateverThePlacement) {
  const Order order({1, 0, 1, 2, 0, 1}, 3);
  EXPECT_EQ(order.rank_at, (std::vector<uint32_t>{1, 4, 0, 2, 5, 3}));
  EXPECT_EQ(order.first_position, (std::vector<uint64_t>{0, 2, 5, 6}));
  for (uint32_t rank = 0; rank < 6; ++rank) EXPECT_EQ(order.rank_at[order.position_of[rank]], rank);
}

TEST(Problem, BlocksFollowTheRanksOfANode) {
  const Order order({0, 0, 0, 1}, 2);
  Call call;
  call.what = Collective::kAllGather;
  call.count = 10;
  const auto gather = problem_of(call, {0, 10}, order, 1);
  EXPECT_EQ(gather.block_offsets, (std::vector<uint64_t>{0, 30, 40}));
  call.what = Collective::kBroadcast;
  call.root = 3;
  const auto broadcast = problem_of(call, {0, 10}, order, 0);
  EXPECT_EQ(broadcast.root, 1);
  EXPECT_EQ(broadcast.elements(), 10U);
}

TEST(Validate, RefusesWhatACallCannotBe) {
  Call call;
  EXPECT_EQ(validate(call, 4), "");
  call.root = 4;
  EXPECT_NE(validate(call, 4), "");
  call.root = -1;
  EXPECT_NE(validate(call, 4), "");
  call = {};
  call.what = static_cast<Collective>(collectives::kCollectiveCount);
  EXPECT_NE(validate(call, 4), "");
  call = {};
  call.type = static_cast<DataType>(200);
  EXPECT_NE(validate(call, 4), "");
  call = {};
  call.op = static_cast<collectives::ReduceOp>(200);
  EXPECT_NE(validate(call, 4), "");
  call = {};
  call.op = collectives::ReduceOp::kBxor;
  EXPECT_EQ(validate(call, 4), "");
  EXPECT_TRUE(is_sound(call));
  call.type = DataType::kFloat8E5M2;
  EXPECT_EQ(validate(call, 4), "no reduction bxor of float8_e5m2");
  EXPECT_FALSE(is_sound(call));
  call = {};
  call.count = uint64_t{1} << 60;
  EXPECT_NE(validate(call, 4), "");
}

TEST(Validate, TakesBroadcastsAndReducesForParts) {
  for (int what = 0; what < collectives::kCollectiveCount; ++what) {
    for (const int part : {0, 1, 127, 128, 129, 255}) {
      Call call;
      call.what = static_cast<Collective>(what);
      call.part = static_cast<uint8_t>(part);
      const bool valid = part == 0 || (is_rooted(call) && part != 128);
      EXPECT_EQ(validate(call, 4).empty(), valid) << describe(call);
      EXPECT_EQ(is_sound(call), valid) << describe(call);
    }
  }
}

TEST(Partition, PartsOfCallsByCountsAreCutNoFurtherThanTheyMust) {
  for (const auto& layout : {Layout(4, 4, 1), Layout(8, 4, 2)}) {
    Call call;
    call.what = Collective::kBroadcast;
    call.type = DataType::kFloat32;
    call.count = 131'072;
    EXPECT_GT(Partition(call, layout).chunks(), 1U);
    call.part = 1;
    EXPECT_EQ(Partition(call, layout).chunks(), 1U);
    call.count = 131'073;
    EXPECT_EQ(Partition(call, layout).chunks(), 2U);
  }
}

TEST(Describe, NamesWhatMatters) {
  Call call;
  call.what = Collective::kReduce;
  call.type = DataType::kBFloat16;
  call.count = 12;
  call.root = 3;
  EXPECT_EQ(describe(call), "reduce of 12 bfloat16, sum, root 3");
  call.part = 2;
  EXPECT_EQ(describe(call), "reduce of 12 bfloat16, sum, root 3, part 2 of that root's in a call by counts");
  call.part |= kLastPart;
  EXPECT_EQ(describe(call),
            "reduce of 12 bfloat16, sum, root 3, part 2 of that root's and last in a call by counts");
  call.part = 0;
  call.type = static_cast<collectives::DataType>(255);
  call.op = static_cast<collectives::ReduceOp>(200);
  EXPECT_EQ(describe(call), "reduce of 12 type 255, reduction 200, root 3");
  call.what = static_cast<collectives::Collective>(99);
  EXPECT_EQ(describe(call), "collective 99 of 12 type 255");
}

}  // namespace
}  // namespace hdt::ipc
