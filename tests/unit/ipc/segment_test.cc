// segment_test.cc: the layout of a group's shared memory, and its failure record.
#include "ipc/segment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <new>

#include "base/shared_memory.h"

namespace hdt::ipc {
namespace {

// Adds [first, first + bytes) to the ranges in use; fails if it overlaps one of them.
void claim(std::map<uint64_t, uint64_t>& used, uint64_t first, uint64_t bytes, uint64_t limit) {
  ASSERT_LE(first + bytes, limit);
  const auto next = used.lower_bound(first);
  if (next != used.end()) {
    ASSERT_LE(first + bytes, next->first);
  }
  if (next != used.begin()) {
    ASSERT_LE(std::prev(next)->first + std::prev(next)->second, first);
  }
  used.emplace(first, bytes);
}

TEST(Layout, NoTwoAreasOverlap) {
  for (const auto& [ranks, nodes, local] :
       {std::array<uint32_t, 3>{1, 1, 1}, {2, 1, 2}, {2, 2, 1}, {5, 2, 4}, {64, 8, 8}}) {
    const Layout layout(ranks, nodes, local);
    EXPECT_LE(layout.members + sizeof(Member) * ranks, layout.places);
    EXPECT_LE(layout.places + sizeof(MeetingPlace) * nodes, layout.node_rates);
    EXPECT_LE(layout.node_rates + sizeof(uint64_t) * nodes, layout.rank_states);
    EXPECT_EQ(layout.rank_states % alignof(RankState), 0U);
    EXPECT_LE(layout.rank_states + sizeof(RankState) * local, layout.rings);
    EXPECT_LE(layout.rings + sizeof(MessageRing) * 2 * local * ranks, layout.data);
    std::map<uint64_t, uint64_t> used;
    const uint64_t limit = layout.total - layout.data;
    for (uint64_t chunk = 0; chunk < layout.slots; ++chunk) {
      for (uint32_t i = 0; i < local; ++i) claim(used, layout.staging(chunk, i), layout.chunk_bytes, limit);
      claim(used, layout.input(chunk), layout.chunk_bytes, limit);
      claim(used, layout.output(chunk), layout.chunk_bytes, limit);
      if (nodes > 1) claim(used, layout.scratch(chunk), layout.scratch_bytes, limit);
    }
    for (uint32_t i = 0; i < local; ++i) {
      for (uint32_t peer = 0; peer < ranks; ++peer) {
        for (const Direction direction : {Direction::kOut, Direction::kIn}) {
          const uint32_t ring = layout.ring_index(direction, i, peer);
          ASSERT_LT(ring, 2 * local * ranks);
          for (uint64_t index = 0; index < layout.slots; ++index) {
            claim(used, layout.cell(ring, index), sizeof(CellHeader) + layout.cell_bytes, limit);
          }
        }
      }
    }
  }
}

class SegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto memory = SharedMemory::create("test", layout_.total);
    ASSERT_TRUE(memory.is_ok()) << memory.status().to_string();
    memory_ = memory.take();
    segment_ = Segment::format(memory_.data(), layout_, 7, "dp", 0);
  }
  Layout layout_{3, 2, 2};
  SharedMemory memory_;
  Segment segment_;
};

TEST_F(SegmentTest, AttachReadsWhatFormatWrote) {
  const auto attached = Segment::attach(memory_.data(), memory_.size());
  ASSERT_TRUE(attached.is_ok());
  EXPECT_EQ(attached.value().layout().total, layout_.total);
  EXPECT_EQ(attached.value().header().group, 7U);
  EXPECT_STREQ(attached.value().header().group_class, "dp");
}

TEST_F(SegmentTest, AttachRefusesWhatMakesNoSense) {
  EXPECT_FALSE(Segment::attach(memory_.data(), layout_.total - 1).is_ok());
  EXPECT_FALSE(Segment::attach(memory_.data(), 16).is_ok());
  const auto refused = [&](auto change) {
    Header& header = segment_.header();
    const auto before =
        std::array{header.version, header.ranks, header.nodes, header.node, header.local_ranks};
    change(header);
    EXPECT_FALSE(Segment::attach(memory_.data(), memory_.size()).is_ok());
    header.version = before[0];
    header.ranks = before[1];
    header.nodes = before[2];
    header.node = before[3];
    header.local_ranks = before[4];
  };
  refused([](Header& h) { h.version = 99; });
  refused([](Header& h) { h.ranks = 0; });
  refused([](Header& h) { h.ranks = kMaxRanks + 1; });
  refused([](Header& h) { h.nodes = 4; });
  refused([](Header& h) { h.node = 2; });
  refused([](Header& h) { h.local_ranks = 4; });
  refused([](Header& h) { h.local_ranks = 3; });  // none is left for the other node
  refused([](Header& h) { h.local_ranks = kMaxLocalRanks + 1; });
  EXPECT_TRUE(Segment::attach(memory_.data(), memory_.size()).is_ok());
  segment_.header().magic = 0;
  EXPECT_FALSE(Segment::attach(memory_.data(), memory_.size()).is_ok());
}

// Ranks that write afterwards change nothing of the description that was read.
TEST_F(SegmentTest, WhatWasReadOfTheHeaderStays) {
  auto found = Description::read(memory_.data(), memory_.size());
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  new (&segment_.header()) Header{};
  segment_.header().ranks = 60'000;
  EXPECT_EQ(found.value().group, 7U);
  EXPECT_EQ(found.value().group_class, "dp");
  const Segment view = Segment::view(memory_.data(), found.value().layout);
  EXPECT_EQ(view.layout().total, layout_.total);
  EXPECT_EQ(view.data(), segment_.data());
}

TEST_F(SegmentTest, AFailureThatRanksHaveScribbledOverIsStillOne) {
  EXPECT_TRUE(segment_.fail(Code::kRankLost, 2, "gone"));
  Failure& failure = segment_.header().failure;
  failure.word = Failure::word_of(static_cast<Code>(123), 70'000, 2);
  std::memset(failure.texts[1].message, 'x', sizeof failure.texts[1].message);
  EXPECT_EQ(segment_.failure().code(), Code::kInternal);
  EXPECT_EQ(segment_.failure().message().size(), sizeof failure.texts[1].message);
  EXPECT_EQ(segment_.failed_rank(), -1);
  failure.word = Failure::word_of(Code::kTimeout, 1, kFailureTexts + 1);
  EXPECT_EQ(segment_.failure().code(), Code::kTimeout);
}

TEST_F(SegmentTest, TheFirstFailureStaysAndEverybodyIsRung) {
  EXPECT_TRUE(segment_.failure().is_ok());
  EXPECT_EQ(segment_.failed_rank(), -1);
  const Sleeper sleeper(segment_.rank_state(1).doorbell);
  const uint32_t rings = segment_.rank_state(1).doorbell.count.load();
  EXPECT_TRUE(segment_.fail(Code::kRankLost, 2, std::string(5000, 'x')));
  EXPECT_FALSE(segment_.fail(Code::kTimeout, 1, "later"));
  EXPECT_EQ(segment_.failure().code(), Code::kRankLost);
  EXPECT_EQ(segment_.failed_rank(), 2);
  EXPECT_EQ(segment_.failure().message().size(), sizeof(FailureText::message) - 1);
  EXPECT_NE(segment_.rank_state(1).doorbell.count.load(), rings);
}

TEST_F(SegmentTest, AForeignFailureCodeIsNotBelieved) {
  segment_.fail(Code::kTimeout, 1, "text");
  segment_.header().failure.word = Failure::word_of(static_cast<Code>(123), 1, 1);
  EXPECT_EQ(segment_.failure().code(), Code::kInternal);
}

// Dies while it reports a failure, where it reads the text, which is not there.
void report_and_die(const Segment& segment) {
  // Larger than what malloc() ever takes from its heap (32 MiB), so that the page is the text's alone.
  const std::string text(size_t{64} << 20, 'x');
  constexpr uintptr_t kPage = 4096;
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(text.data()) / kPage * kPage);
  if (::mprotect(page, kPage, PROT_NONE) != 0) ::_exit(0);
  (void)segment.fail(Code::kTimeout, 0, text);
  ::_exit(0);
}

class DeadReporters : public SegmentTest, public ::testing::WithParamInterface<uint32_t> {};

// Each keeps a place for a text. The last number is that of the places: then the failure has no text.
TEST_P(DeadReporters, HideNoLaterFailure) {
  // The child of a fork would not have the memory otherwise (SharedMemory).
  ASSERT_EQ(::madvise(memory_.data(), memory_.size(), MADV_DOFORK), 0);
  for (uint32_t death = 0; death < GetParam(); ++death) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) report_and_die(segment_);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_NE(status, 0) << "it did not die";
    ASSERT_TRUE(segment_.failure().is_ok());
  }
  EXPECT_TRUE(segment_.fail(Code::kRankLost, 2, "gone"));
  EXPECT_TRUE(segment_.failed());
  EXPECT_EQ(segment_.failure().code(), Code::kRankLost);
  EXPECT_EQ(segment_.failed_rank(), 2);
  EXPECT_EQ(segment_.failure().message(), GetParam() < kFailureTexts ? "gone" : "the reason is not known");
}

INSTANTIATE_TEST_SUITE_P(Some, DeadReporters, ::testing::Values(1, 3, kFailureTexts));

}  // namespace
}  // namespace hdt::ipc
