// buffer_use_test.cc: the use of a rank's buffers as a table over collectives, roots and kinds of memory, and
// what a rank and its daemon, which know different things, must both get out of it.
#include "ipc/buffer_use.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "ipc/partition.h"

namespace hdt::ipc {
namespace {

using collectives::Collective;

constexpr uint64_t kLarge = uint64_t{1} << 20;  // elements of a call that may be in place

// The sendbuf's use and the recvbuf's, as the table below has them.
std::string letters(const CallBuffers& use) {
  const auto letter = [](BufferUse one) -> char {
    switch (one) {
      case BufferUse::kUnused:
        return '-';
      case BufferUse::kStaged:
        return 's';
      case BufferUse::kCopiedOut:
        return 'o';
      case BufferUse::kInPlace:
        return 'P';
      case BufferUse::kOwnCopy:
        return 'c';
    }
    return '?';
  };
  return {letter(use.send), letter(use.recv)};
}

Call call_of(Collective what, int32_t root, uint64_t count) {
  Call call;
  call.what = what;
  call.root = root;
  call.count = count;
  return call;
}

// Every rank of every node, so that a root is met from both sides.
template <typename Check>
void for_all(const Layout& layout, uint64_t count, Check check) {
  for (int what = 0; what < collectives::kCollectiveCount; ++what) {
    for (uint32_t root = 0; root < layout.ranks; ++root) {
      for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
        for (const bool send : {false, true}) {
          for (const bool recv : {false, true}) {
            for (const bool at_its_place : {false, true}) {
              const Call call = call_of(static_cast<Collective>(what), static_cast<int32_t>(root), count);
              SCOPED_TRACE(describe(call) + ", rank " + std::to_string(rank) + (send ? ", send" : "") +
                           (recv ? ", recv" : "") + (at_its_place ? ", at its place" : ""));
              check(call, rank, BufferFacts{send, recv, at_its_place});
            }
          }
        }
      }
    }
  }
}

TEST(BufferUse, IsThatOfTheTable) {
  enum Who { kRoot, kOther, kAny };
  struct Row {
    Collective what;
    Who who;
    uint32_t nodes;  // 0: any
    // Which buffers are shared. Two letters: sendbuf, recvbuf; - unused, s staged, o copied out, P in place,
    // c the rank's own copy.
    std::array<const char*, 4> none_send_recv_both;
    // The same where the contribution is at its place in the recvbuf; null: as above.
    std::array<const char*, 4> at_its_place = {};
  };
  const Row table[] = {
      {Collective::kAllReduce, kAny, 0, {"so", "Po", "sP", "PP"}},
      {Collective::kReduce, kRoot, 0, {"so", "Po", "sP", "PP"}},
      {Collective::kReduce, kOther, 0, {"s-", "P-", "s-", "P-"}},
      {Collective::kReduceScatter, kAny, 2, {"so", "Po", "sP", "PP"}},
      {Collective::kReduceScatter, kAny, 3, {"so", "Po", "so", "Po"}},
      {Collective::kAllGather, kAny, 0, {"so", "so", "cP", "cP"}, {"so", "so", "-P", "-P"}},
      {Collective::kBroadcast, kRoot, 0, {"so", "Pc", "so", "Pc"}, {"s-", "P-", "s-", "P-"}},
      {Collective::kBroadcast, kOther, 0, {"-o", "-o", "-P", "-P"}},
      {Collective::kBarrier, kAny, 0, {"--", "--", "--", "--"}},
  };
  for (const uint32_t nodes : {2U, 3U}) {
    const Layout layout(nodes, nodes, 1);
    for_all(layout, kLarge, [&](const Call& call, uint32_t rank, const BufferFacts& facts) {
      const Who who = static_cast<uint32_t>(call.root) == rank ? kRoot : kOther;
      const size_t column = (facts.send_shared ? 1 : 0) + (facts.recv_shared ? 2 : 0);
      int rows = 0;
      for (const Row& row : table) {
        if (row.what != call.what || (row.who != kAny && row.who != who) ||
            (row.nodes != 0 && row.nodes != nodes)) {
          continue;
        }
        ++rows;
        const bool other = facts.at_its_place && row.at_its_place[column] != nullptr;
        EXPECT_EQ(letters(buffer_use(call, layout, rank, facts)),
                  other ? row.at_its_place[column] : row.none_send_recv_both[column]);
      }
      EXPECT_EQ(rows, 1);
    });
  }
}

// A call that is too small, a node of several ranks, and the seventeenth node: as if no memory were shared.
TEST(BufferUse, GoesThroughTheSlotsWhereACallMayNotBeInPlace) {
  struct Case {
    Layout layout;
    uint64_t count;
  };
  for (const auto& [layout, count] :
       {Case{{2, 2, 1}, 1}, Case{{4, 2, 2}, kLarge}, Case{{17, 17, 1}, kLarge}, Case{{2, 2, 1}, 0}}) {
    for_all(layout, count, [&, &shape = layout](const Call& call, uint32_t rank, const BufferFacts& facts) {
      const CallBuffers use = buffer_use(call, shape, rank, facts);
      EXPECT_EQ(use, buffer_use(call, shape, rank, {.at_its_place = facts.at_its_place}));
      EXPECT_FALSE(use.source_in_place());
      EXPECT_TRUE(use.holds_slots());
    });
  }
}

// A node of which another node has several ranks: only collectives by blocks need the same of all.
TEST(BufferUse, OfALoneRankBesideANodeOfTwo) {
  const Layout layout(3, 2, 1);
  for_all(layout, kLarge, [&](const Call& call, uint32_t rank, const BufferFacts& facts) {
    const bool in_place = letters(buffer_use(call, layout, rank, facts)).find('P') != std::string::npos;
    if (by_blocks(call.what)) {
      EXPECT_FALSE(in_place);
    }
    if (call.what == Collective::kAllReduce) {
      EXPECT_EQ(in_place, facts.send_shared || facts.recv_shared);
    }
  });
}

// The two questions that rank and daemon ask, from the letters: what is in slots, and what need not be.
TEST(BufferUse, SaysWhatSlotsHold) {
  const Layout layout(3, 3, 1);
  for_all(layout, kLarge, [&](const Call& call, uint32_t rank, const BufferFacts& facts) {
    const CallBuffers use = buffer_use(call, layout, rank, facts);
    const std::string both = letters(use);
    const auto has = [&](char one) { return both.find(one) != std::string::npos; };
    EXPECT_EQ(use.source_in_place(), has('P') && !has('s')) << both;
    EXPECT_EQ(use.holds_slots(), has('s') || has('o') || call.what == Collective::kBarrier) << both;
  });
}

// The daemon knows the memories that the rank has named, which are those that the rank has looked for, and
// not where the contribution lies in the recvbuf. It must come to what the rank has come to.
TEST(BufferUse, TheDaemonComesToTheSameFromLess) {
  for (const Layout& layout : {Layout(2, 2, 1), Layout(3, 3, 1), Layout(3, 2, 1), Layout(4, 2, 2)}) {
    for (const uint64_t count : {uint64_t{5}, kLarge}) {
      for_all(layout, count, [&](const Call& call, uint32_t rank, const BufferFacts& facts) {
        const CallBuffers wanted = buffer_use(call, layout, rank, {true, true});
        const BufferFacts named{facts.send_shared && wanted.send == BufferUse::kInPlace,
                                facts.recv_shared && wanted.recv == BufferUse::kInPlace, facts.at_its_place};
        const CallBuffers ranks = buffer_use(call, layout, rank, named);
        EXPECT_EQ(ranks, buffer_use(call, layout, rank, facts)) << "what was not looked for changes nothing";
        const CallBuffers daemons =
            buffer_use(call, layout, rank, {named.send_shared, named.recv_shared, false});
        EXPECT_EQ(ranks.send == BufferUse::kInPlace, daemons.send == BufferUse::kInPlace);
        EXPECT_EQ(ranks.recv == BufferUse::kInPlace, daemons.recv == BufferUse::kInPlace);
        EXPECT_EQ(ranks.source_in_place(), daemons.source_in_place());
        EXPECT_EQ(ranks.holds_slots(), daemons.holds_slots());
      });
    }
  }
}

}  // namespace
}  // namespace hdt::ipc
