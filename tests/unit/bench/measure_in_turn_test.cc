// measure_in_turn_test.cc: the order in which engines have their turns, ratios, and what an engine lacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/median.h"
#include "bench/commbench/measure.h"

namespace hdt::bench {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

// A group of one whose calls copy, and are noted.
class NotingCommunicator : public Communicator {
 public:
  NotingCommunicator(std::string name, std::string& turns, std::string missing = "")
      : name_(std::move(name)), turns_(turns), missing_(std::move(missing)) {}
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  int node_of(int) const override { return 0; }
  Status run(const Call& call) override {
    turns_ += name_;
    if (call.send != call.recv) std::memcpy(call.recv, call.send, call.count * element_bytes(call.type));
    return Status::ok();
  }
  Status barrier() override { return Status::ok(); }
  Status gather_all(const void* send, size_t bytes, void* recv) override {
    std::memcpy(recv, send, bytes);
    return Status::ok();
  }
  Result<Memory> allocate(size_t bytes) override {
    return Memory(new std::byte[bytes], [](std::byte* memory) { delete[] memory; });
  }
  std::string lacks(const Call&) const override { return missing_; }

 private:
  std::string name_;
  std::string& turns_;
  std::string missing_;
};

constexpr size_t kBytes = 256;

std::vector<RowResult> measure(std::vector<Communicator*> engines, int rounds, Collective what) {
  std::vector<Measurer> measurers;
  for (Communicator* engine : engines) {
    Result<Measurer> made = Measurer::make(*engine, {2, 0, true}, kBytes);
    if (!made.is_ok()) ADD_FAILURE() << made.status().to_string();
    measurers.push_back(made.take());
  }
  Pattern pattern(HDT_FLOAT32, HDT_SUM, 1, 7, kBytes);
  Result<std::vector<RowResult>> results =
      measure_in_turn(measurers, 0, rounds, {what, kBytes, HDT_FLOAT32, HDT_SUM, 0}, pattern);
  if (!results.is_ok()) ADD_FAILURE() << results.status().to_string();
  return results.take();
}

TEST(MeasureInTurn, EnginesHaveTheirTurnsInEveryRound) {
  std::string turns;
  NotingCommunicator a("A", turns);
  NotingCommunicator b("B", turns);
  const auto results = measure({&a, &b}, 3, Collective::kSendRecv);  // out of place only
  EXPECT_EQ(turns, "AABBAABBAABB");
  ASSERT_EQ(results.size(), 2u);
  for (size_t engine = 0; engine < 2; ++engine) {
    EXPECT_EQ(results[engine].engine, engine);
    EXPECT_EQ(results[engine].out_of_place.round_p50_us.size(), 3u);
    EXPECT_EQ(results[engine].out_of_place.wrong, 0);
    ASSERT_TRUE(results[engine].out_of_place.ratio.has_value());
  }
  EXPECT_DOUBLE_EQ(*results[0].out_of_place.ratio, 1);
}

TEST(MeasureInTurn, TheRatioIsTheMedianOfTheRoundsRatios) {
  std::string turns;
  NotingCommunicator a("A", turns);
  NotingCommunicator b("B", turns);
  const auto results = measure({&a, &b}, 3, Collective::kSendRecv);
  std::vector<double> ratios;
  for (size_t round = 0; round < 3; ++round) {
    ratios.push_back(results[1].out_of_place.round_p50_us[round] /
                     results[0].out_of_place.round_p50_us[round]);
  }
  EXPECT_THAT(*results[1].out_of_place.ratio, DoubleNear(median(ratios), 1e-12));
}

TEST(MeasureInTurn, WhatAnEngineLacksIsNotRun) {
  std::string turns;
  NotingCommunicator a("A", turns);
  NotingCommunicator b("B", turns, "no such call");
  const auto results = measure({&a, &b}, 2, Collective::kSendRecv);
  EXPECT_EQ(turns, "AAAA");
  EXPECT_EQ(results[1].lacks, "no such call");
  EXPECT_FALSE(results[1].out_of_place.ratio.has_value());
}

TEST(MeasureInTurn, WithoutAReferenceThereAreNoRatios) {
  std::string turns;
  NotingCommunicator a("A", turns, "nothing");
  NotingCommunicator b("B", turns);
  const auto results = measure({&a, &b}, 2, Collective::kSendRecv);
  EXPECT_EQ(turns, "BBBB");
  EXPECT_FALSE(results[1].out_of_place.ratio.has_value());
}

TEST(MeasureInTurn, ABarrierIsTimedAndHasNothingToVerify) {
  std::string turns;
  NotingCommunicator a("A", turns);
  const auto results = measure({&a}, 1, Collective::kBarrier);
  EXPECT_EQ(turns, "AA");
  EXPECT_FALSE(results[0].out_of_place.wrong.has_value());
  EXPECT_FALSE(results[0].in_place.has_value());
}

}  // namespace
}  // namespace hdt::bench
