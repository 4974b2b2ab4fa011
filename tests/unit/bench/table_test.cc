// table_test.cc: the table, character by character.
#include "bench/commbench/table.h"

#include <gtest/gtest.h>

#include "tests/unit/bench/example_rows.h"

namespace hdt::bench {
namespace {

TEST(Table, Header) {
  Options options;
  options.min_bytes = 8;
  options.max_bytes = size_t{64} << 20;
  EXPECT_EQ(
      header_text(options, {{0, 4711, "alpha"}, {1, 12, "beta"}}, example_engines()),
      "# hdt-commbench minBytes 8 maxBytes 64M step: 2(factor) warmup iters: 5 iters: 20 rounds: 1 validate: "
      "1 memory: host\n"
      "#\n"
      "# Using ranks\n"
      "#  Rank   0 Node   0 Pid   4711 on alpha\n"
      "#  Rank   1 Node   1 Pid     12 on beta\n"
      "# Using engines\n"
      "#  hdt   HDT 0.1.0\n"
      "#  mpi   MPI 4\n");
}

TEST(Table, ColumnsAndRowsAlign) {
  const std::string columns = columns_text(Collective::kAllReduce);
  EXPECT_EQ(
      columns,
      "#\n"
      "# allreduce\n"
      "#                                                          out-of-place                       "
      "in-place                out-of-place         in-place                    ratio             cpu      "
      "\n"
      "#       size        count     type  redop   root      time   algbw   busbw #wrong      time   "
      "algbw   busbw #wrong       p50      p99       p50      p99  engine      out      in      out      in\n"
      "#        (B)   (elements)                             (us)  (GB/s)  (GB/s)             (us)  "
      "(GB/s)  (GB/s)             (us)     (us)      (us)     (us)                            (s/GB)  "
      "(s/GB)\n");
  EXPECT_EQ(row_text(example_rows()[0], EngineKind::kHdt),
            "     8388608      2097152  float32    sum     -1    2500.5    3.35    5.03      0     12346    "
            "0.68    1.02      3    2450.2   3000.1     12000    13000     hdt    1.000     N/A    0.500     "
            "N/A\n");
  EXPECT_EQ(
      row_text(example_rows()[1], EngineKind::kHdt),
      "        1024          512 bfloat16   none     -1      8.12    0.13    0.13    N/A       N/A     "
      "N/A     N/A    N/A      8.00     9.50       N/A      N/A     hdt      N/A     N/A      N/A     N/A\n");
}

TEST(Table, WhatAnEngineLacksIsNoFigure) {
  EXPECT_EQ(row_text(example_rows()[2], EngineKind::kMpi),
            "          64           32 bfloat16    avg     -1         -       -       -      -         -     "
            "  -       -  "
            "    -         -        -         -        -     mpi        -       -        -       -\n");
}

TEST(Table, AWrongPeerIsNamedAndNotCounted) {
  EXPECT_EQ(wrong_peer_text(example_rows()[0], EngineKind::kGloo),
            "#  gloo: 3 wrong values above: these times are of a wrong result\n");
  EXPECT_EQ(example_rows()[1].wrong(), 0);
  Totals totals;
  totals.add(example_rows()[0], false, false);
  EXPECT_EQ(totals.wrong, 0);
}

TEST(Table, BytesByInterfaceAreACommentLine) {
  EXPECT_EQ(sent_text(example_rows()[0], EngineKind::kHdt),
            "#  allreduce of 8388608 bytes, hdt, an iteration, bytes sent by interface: lo 77\n");
  EXPECT_EQ(sent_text(example_rows()[1], EngineKind::kHdt), "");
}

TEST(Table, FooterLeavesOutWhatWasNotMeasuredAndWhatMakesNoResult) {
  Totals totals;
  totals.add(example_rows()[2]);
  totals.add(example_rows()[1], false, false);
  EXPECT_EQ(footer_text(totals), "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n#\n");
}

TEST(Table, FooterSumsOverRowsAndPlacements) {
  Totals totals;
  totals.add(example_rows()[0]);
  EXPECT_EQ(totals.wrong, 3);
  EXPECT_EQ(footer_text(totals), "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 3.02588\n#\n");
  totals.add(example_rows()[1]);
  EXPECT_EQ(footer_text(totals),
            "# Out of bounds values : N/A (not checked)\n# Avg bus bandwidth    : 2.05925\n#\n");
  EXPECT_EQ(footer_text(Totals()), "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n#\n");
}

}  // namespace
}  // namespace hdt::bench
