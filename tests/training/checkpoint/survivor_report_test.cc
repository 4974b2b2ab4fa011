// survivor_report_test.cc: a report is read as it was written, and nothing else is a report: what a reader
// finds while another node writes, damaged bytes, and ranks that the world does not have.
#include "training/checkpoint/survivor_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/crc32c.h"
#include "tests/training/checkpoint/examples.h"

namespace hdt::training {
namespace {

constexpr int kRanks = 40;

SurvivorReport random_report(std::mt19937_64& random) {
  SurvivorReport report;
  report.round = static_cast<int64_t>(random() % 10);
  report.beat = static_cast<int64_t>(random() >> 2);
  for (uint64_t left = random() % kRanks; left > 0; --left)
    report.lost.insert(static_cast<int>(random() % kRanks));
  report.settled = random() % 2 == 0;
  return report;
}

// The line of some JSON, with the checksum that belongs to it.
std::string line(const std::string& json) { return fmt::format("{:08x} {}\n", crc32c(json), json); }

TEST(SurvivorReport, IsReadAsWritten) {
  std::mt19937_64 random(seed_of_test());
  for (int i = 0; i < 200; ++i) {
    const SurvivorReport report = random_report(random);
    const auto read = parse_survivor_report(to_text(report), kRanks);
    ASSERT_TRUE(read) << to_text(report);
    EXPECT_EQ(*read, report);
  }
  EXPECT_EQ(parse_survivor_report(line(R"({"beat":7,"lost":[0,2],"round":1,"settled":false})"), 3),
            (SurvivorReport{1, 7, {0, 2}, false}));
}

// The file is written in place: a reader may find the beginning of a new text, and then the end of the old
// one.
TEST(SurvivorReport, OfTwoWritesIsNone) {
  std::mt19937_64 random(seed_of_test());
  int mixed = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string before = to_text(random_report(random));
    const std::string after = to_text(random_report(random));
    const size_t written = random() % (after.size() + 1);
    std::string found = after.substr(0, written);
    if (before.size() > written) found += before.substr(written);
    if (found == before || found == after) continue;
    ++mixed;
    EXPECT_FALSE(parse_survivor_report(found, kRanks)) << found;
  }
  EXPECT_GT(mixed, 200);
}

TEST(SurvivorReport, WithADamagedOrMissingByteIsNone) {
  std::mt19937_64 random(seed_of_test());
  const std::string whole = to_text(random_report(random));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    EXPECT_FALSE(parse_survivor_report(damaged, kRanks)) << damaged;
    EXPECT_FALSE(parse_survivor_report(whole.substr(0, at), kRanks)) << at;
  }
  EXPECT_FALSE(parse_survivor_report(whole + whole, kRanks));
}

// Their checksums are right: somebody else has written them.
TEST(SurvivorReport, OfAnotherWriterIsNone) {
  ASSERT_TRUE(parse_survivor_report(line(R"({"beat":1,"lost":[2],"round":1,"settled":false})"), 3));
  for (const char* json : {R"({"beat":1,"lost":[3],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[-1],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[18446744073709551615],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[1.0],"round":1,"settled":false})",
                           R"({"beat":1,"lost":["1"],"round":1,"settled":false})",
                           R"({"beat":1,"lost":{"a":1},"round":1,"settled":false})",
                           R"({"beat":1,"lost":[1,0],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[1,1],"round":1,"settled":false})",
                           R"({"beat":-1,"lost":[],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[],"round":-1,"settled":false})",
                           R"({"beat":1.5,"lost":[],"round":1,"settled":false})",
                           R"({"beat":18446744073709551615,"lost":[],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[],"settled":false})",
                           R"({"beat":1,"lost":[],"round":1})",
                           R"({"beat":1,"lost":[],"round":1,"settled":0})",
                           R"({"beat":1,"round":1,"settled":false})",
                           R"({"lost":[],"round":1,"settled":false})",
                           R"({"beat":1,"lost":[],"more":0,"round":1,"settled":false})",
                           R"({"beat":1,"beat":1,"lost":[],"round":1,"settled":false})",
                           R"({"beat": 1,"lost":[],"round":1,"settled":false})",
                           "[]",
                           "1",
                           "",
                           "{"})
    EXPECT_FALSE(parse_survivor_report(line(json), 3)) << json;
  EXPECT_FALSE(parse_survivor_report("", 3));
  EXPECT_FALSE(parse_survivor_report("\n", 3));
  EXPECT_FALSE(parse_survivor_report(line(std::string(kMostReportBytes, '[')), 3));
}

// The numbers of the ranks of the largest world have room.
TEST(SurvivorReport, OfALargeWorldHasRoom) {
  constexpr int kLargest = 65'536;
  SurvivorReport report{1, 1, {}, false};
  for (int rank = 0; rank + 1 < kLargest; ++rank) report.lost.insert(rank);
  EXPECT_EQ(parse_survivor_report(to_text(report), kLargest), report);
}

}  // namespace
}  // namespace hdt::training
