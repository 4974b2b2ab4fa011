// journal_test.cc: what one daemon notes and its successor reads, also if ranks have written nonsense over
// it.
#include "ipc/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace hdt::ipc {
namespace {

constexpr uint32_t kNodes = 3;
constexpr uint32_t kSlots = 4;

class JournalTest : public ::testing::Test {
 protected:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_ = std::vector<Line>(Journal::bytes(kNodes, kSlots) / sizeof(Line) + 1);
  Journal journal_{memory_.front().bytes, kNodes, kSlots};

  std::vector<std::pair<uint32_t, uint32_t>> arrivals(uint64_t chunk) {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    journal_.for_arrivals(chunk, [&](uint32_t node, uint32_t tag) { all.emplace_back(node, tag); });
    return all;
  }
  static SentWrite write(uint64_t chunk, uint32_t peer, uint32_t tag, uint32_t bytes) {
    SentWrite what{};
    what.chunk = chunk;
    what.peer = peer;
    what.tag = tag;
    what.bytes = bytes;
    return what;
  }
  std::vector<std::string> sent() {
    std::vector<std::string> all;
    journal_.for_sent([&](const SentWrite& what, const std::byte* data) {
      all.push_back(std::to_string(what.chunk) + "/" + std::to_string(what.peer) + "/" +
                    std::to_string(what.tag) + "/" +
                    std::string(reinterpret_cast<const char*>(data), what.bytes));
    });
    return all;
  }
};

TEST_F(JournalTest, ANewOneKnowsNothing) {
  EXPECT_FALSE(journal_.agreed());
  EXPECT_EQ(journal_.finished().calls, 0U);
  EXPECT_EQ(journal_.finished().chunks, 0U);
  EXPECT_TRUE(arrivals(0).empty());
  EXPECT_FALSE(journal_.started(0));
  EXPECT_TRUE(sent().empty());
}

TEST_F(JournalTest, WhatWasAgreed) {
  Journal::Agreed agreed;
  agreed.algorithm = collectives::Algorithm::kBruck;
  for (uint64_t node = 0; node < kNodes; ++node)
    agreed.rates.push_back({{node, node + 1}, {{1, node}, {2, node}, {3, node}}});
  agreed.nics = {{}, {2, 20'000, 0}, {4, 0, 1}};
  journal_.agree(agreed);
  const auto read = journal_.agreed();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->algorithm, agreed.algorithm);
  EXPECT_EQ(read->rates, agreed.rates);
  EXPECT_EQ(read->nics, agreed.nics);
  agreed.nics[1] = {3, 30'000, 1};
  journal_.set_nics(1, agreed.nics[1]);
  EXPECT_EQ(journal_.agreed()->nics, agreed.nics);
}

TEST_F(JournalTest, ThePromiseThatWasMadeLast) {
  EXPECT_EQ(journal_.promised().change, 0U);
  for (const uint64_t change : {uint64_t{1}, uint64_t{2}, uint64_t{4}}) {
    journal_.promise({change, 10 * change});
    EXPECT_EQ(journal_.promised().change, change);
    EXPECT_EQ(journal_.promised().hold, 10 * change);
  }
}

TEST_F(JournalTest, TheLastTwoChangesOfRates) {
  EXPECT_TRUE(journal_.changed_rates().empty());
  std::vector<LinkPart> parts(kNodes * kNodes, kWholeLink);
  for (uint64_t number = 1; number <= 5; ++number) {
    parts[number] = static_cast<LinkPart>(50 * number);
    journal_.change_rates(2 * number, 100 * number, parts);
    const auto changes = journal_.changed_rates();
    ASSERT_EQ(changes.size(), number == 1 ? 1U : 2U);
    EXPECT_EQ(changes.back().number, 2 * number);
    EXPECT_EQ(changes.back().call, 100 * number);
    EXPECT_EQ(changes.back().parts, parts);
    EXPECT_EQ(changes.front().call, 100 * std::max<uint64_t>(number - 1, 1));
  }
}

TEST_F(JournalTest, ArrivalsOfTheLatestChunkOfASlot) {
  EXPECT_TRUE(journal_.arrived(1, 2, 7));
  EXPECT_TRUE(journal_.arrived(1, 0, 1));
  EXPECT_TRUE(journal_.arrived(2, 1, 0));
  EXPECT_EQ(arrivals(1), (std::vector<std::pair<uint32_t, uint32_t>>{{2, 7}, {0, 1}}));
  EXPECT_TRUE(journal_.arrived(1 + kSlots, 1, 3));
  EXPECT_TRUE(arrivals(1).empty());
  EXPECT_EQ(arrivals(1 + kSlots), (std::vector<std::pair<uint32_t, uint32_t>>{{1, 3}}));
  EXPECT_EQ(arrivals(2).size(), 1U);
}

TEST_F(JournalTest, AFloodOfArrivalsIsRefused) {
  uint64_t taken = 0;
  while (taken < 100'000 && journal_.arrived(0, 1, static_cast<uint32_t>(taken))) ++taken;
  EXPECT_LT(taken, 100'000U);
  EXPECT_EQ(arrivals(0).size(), taken);
}

TEST_F(JournalTest, SmallWritesAreKeptUntilTheNextChunkOfTheSlot) {
  journal_.start(1);
  ASSERT_NE(journal_.keep(write(1, 2, 0, 3), "abc"), nullptr);
  ASSERT_NE(journal_.keep(write(1, 0, 5, 0), nullptr), nullptr);
  EXPECT_EQ(sent(), (std::vector<std::string>{"1/2/0/abc", "1/0/5/"}));
  EXPECT_TRUE(journal_.has_kept(1, 2, 0));
  EXPECT_FALSE(journal_.has_kept(1, 2, 5));
  journal_.start(1 + kSlots);
  EXPECT_TRUE(sent().empty());
  EXPECT_FALSE(journal_.has_kept(1, 2, 0));
}

TEST_F(JournalTest, WhatDoesNotFitIsNotKept) {
  journal_.start(0);
  const std::vector<std::byte> data(32768);
  uint64_t bytes = 0;
  for (uint32_t tag = 0; journal_.keep(write(0, 1, tag, 32768), data.data()) != nullptr; ++tag)
    bytes += data.size();
  EXPECT_GT(bytes, kSentBytes - 3 * data.size());
  EXPECT_LE(bytes, kSentBytes);
}

TEST_F(JournalTest, CallsThatWereToldAndFinished) {
  Call call;
  for (uint64_t sequence = 0; sequence < kToldCalls + 10; ++sequence) {
    call.count = sequence * 3;
    journal_.tell_call(sequence, call);
  }
  uint64_t next = 20;
  journal_.for_told_calls(next, [&](uint64_t sequence, const Call& told) {
    EXPECT_EQ(sequence, next++);
    EXPECT_EQ(told.count, sequence * 3);
  });
  EXPECT_EQ(next, kToldCalls + 10);
  journal_.finish_call(41, 77);
  EXPECT_EQ(journal_.finished().calls, 42U);
  EXPECT_EQ(journal_.finished().chunks, 77U);
}

// Whatever stands there, nothing outside of the journal is read, and what is told is within the geometry.
TEST_F(JournalTest, NonsenseIsNotBelieved) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  auto* bytes = reinterpret_cast<unsigned char*>(memory_.data());
  for (int round = 0; round < 200; ++round) {
    journal_.start(random() % 8);
    journal_.arrived(random() % 8, 1, 1);
    (void)journal_.keep(write(random() % 8, 1, 1, 100), bytes);
    journal_.change_rates(round, round, std::vector<LinkPart>(kNodes * kNodes, kWholeLink));
    for (int i = 0; i < 2000; ++i)
      bytes[random() % Journal::bytes(kNodes, kSlots)] = static_cast<unsigned char>(random());
    if (const auto agreed = journal_.agreed()) {
      EXPECT_TRUE(!agreed->algorithm || static_cast<int>(*agreed->algorithm) < collectives::kAlgorithmCount);
    }
    for (const auto& change : journal_.changed_rates()) {
      EXPECT_EQ(change.parts.size(), kNodes * kNodes);
      for (const LinkPart part : change.parts) EXPECT_GE(part, 1);
    }
    for (uint64_t chunk = 0; chunk < 8; ++chunk) {
      for (const auto& [node, tag] : arrivals(chunk)) EXPECT_LT(node, kNodes);
    }
    journal_.for_sent([&](const SentWrite& what, const std::byte* data) {
      EXPECT_LT(what.peer, kNodes);
      const auto* begin = reinterpret_cast<const unsigned char*>(data);
      EXPECT_GE(begin, bytes);
      EXPECT_LE(begin + what.bytes, bytes + Journal::bytes(kNodes, kSlots));
    });
  }
}

}  // namespace
}  // namespace hdt::ipc
