// raw_bytes_test.cc: what the bound moves, by hand.
#include <gtest/gtest.h>

#include "bench/commbench/raw_communicator.h"

namespace hdt::bench {
namespace {

TEST(RawBytes, BetweenNodesARankMovesItsShareOfWhatItsNodeMustExchange) {
  // Two nodes of one rank: an allreduce sends half of the contribution and half of the result.
  EXPECT_EQ(raw_wire_bytes(Collective::kAllReduce, 1000, 2, 2), 1000u);
  EXPECT_EQ(raw_wire_bytes(Collective::kReduceScatter, 1000, 2, 2), 500u);
  EXPECT_EQ(raw_wire_bytes(Collective::kAllGather, 1000, 2, 2), 500u);
  EXPECT_EQ(raw_wire_bytes(Collective::kAllToAll, 1000, 2, 2), 500u);
  EXPECT_EQ(raw_wire_bytes(Collective::kGather, 1000, 2, 2), 0u);
  EXPECT_EQ(raw_wire_bytes(Collective::kSendRecv, 1000, 2, 2), 1000u);
  // Two ranks a node share it.
  EXPECT_EQ(raw_wire_bytes(Collective::kAllReduce, 1000, 2, 4), 500u);
  EXPECT_EQ(raw_wire_bytes(Collective::kAllReduce, 1200, 4, 4), 1800u);
  EXPECT_EQ(raw_wire_bytes(Collective::kBroadcast, 1000, 2, 2), 0u);  // none is defined
}

TEST(RawBytes, InANodeARankCopiesHalfOfWhatItReadsAndWrites) {
  EXPECT_EQ(raw_copy_bytes(Collective::kAllReduce, 1000, 2), 1000u);
  EXPECT_EQ(raw_copy_bytes(Collective::kAllGather, 1000, 2), 1000u);
  EXPECT_EQ(raw_copy_bytes(Collective::kAllToAll, 1000, 2), 1000u);
  EXPECT_EQ(raw_copy_bytes(Collective::kScatter, 1000, 2), 500u);
  EXPECT_EQ(raw_copy_bytes(Collective::kReduceScatter, 1000, 2), 750u);
  EXPECT_EQ(raw_copy_bytes(Collective::kReduce, 1000, 4), 625u);
}

}  // namespace
}  // namespace hdt::bench
