// status_test.cc: what hdtctl status says of the ranks of a group: the bytes of their calls' buffers, how
// many of them were copied, and the samples of each rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/communicator/either_memory.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLarge = uint64_t{1} << 20;

std::string status(const Nodes& nodes, bool as_json) {
  std::vector<std::string> words = {HDT_HDTCTL, "--socket", nodes.socket(0), "status"};
  if (as_json) words.emplace_back("--json");
  const ProgramRun done = run_program(words);
  EXPECT_EQ(done.status, 0) << done.errors;
  return done.output;
}

// Node 0's report of its rank `local` in the only group.
nlohmann::json rank_of(const Nodes& nodes, size_t local) {
  const auto shown = nlohmann::json::parse(status(nodes, true), nullptr, false);
  return shown.at("groups").at(0).at("local").at(local);
}

// An allreduce of `bytes`, out of place; afterwards rank 0 looks at its own counts.
void expect_counts(const Nodes& nodes, const Placement& placement, bool shared, uint64_t bytes,
                   uint64_t copied) {
  SCOPED_TRACE(name_of(placement) + (shared ? " shared " : " ordinary ") + std::to_string(bytes));
  nodes.run(placement, [&](Rank& self) {
    EitherMemory send(shared, bytes), recv(shared, bytes);
    HDT_EXPECT(hdtAllReduce(send.data(), recv.data(), bytes, HDT_UINT8, HDT_MAX, self.comm, nullptr));
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    if (self.rank == 0) {
      EXPECT_EQ(rank_of(nodes, 0)["buffer_bytes"], 2 * bytes);
      EXPECT_EQ(rank_of(nodes, 0)["copied_bytes"], copied);
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

TEST(Status, CountsWhatIsCopied) {
  const Nodes nodes;
  for (const Placement& placement : {Placement{0, 0}, Placement{0, 1}}) {
    expect_counts(nodes, placement, true, kLarge, 0);
    expect_counts(nodes, placement, true, 64, 128);  // copying is faster there
    expect_counts(nodes, placement, false, kLarge, 2 * kLarge);
  }
}

TEST(Status, ShowsTheSamplesOfARank) {
  const Nodes nodes;
  nodes.run({0, 0}, [&](Rank& self) {
    if (self.rank == 1) HDT_EXPECT(hdtCommSetSamples(self.comm, 48));
    EitherMemory data(true, kLarge);
    HDT_EXPECT(hdtAllReduce(data.data(), data.data(), kLarge, HDT_UINT8, HDT_MAX, self.comm, nullptr));
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
    if (self.rank == 0) {
      EXPECT_EQ(rank_of(nodes, 0)["samples"], 0);
      EXPECT_EQ(rank_of(nodes, 1)["samples"], 48);
      EXPECT_THAT(status(nodes, false),
                  HasSubstr(" collective call(s) of 2.0 MiB, 100 % of it without copies\n"));
      EXPECT_THAT(
          status(nodes, false),
          HasSubstr(
              " collective call(s) of 2.0 MiB, 100 % of it without copies, 48 sample(s) in each step\n"));
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

}  // namespace
}  // namespace hdt::testing
