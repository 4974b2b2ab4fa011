// configured_algorithm_test.cc: every collective gives the right result with every algorithm that can be configured, and nodes
// that are configured differently are told so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/integration/communicator/example_run.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAlgorithms[] = {
    "ring", "halving_doubling", "recursive_doubling", "double_binary_tree", "bruck", "pairwise"};

// Nothing, a part of a block, one piece, and several; in ordinary memory and in memory that daemons use in place.
std::vector<Example> examples(int ranks) {
  std::vector<Example> all;
  for (const Operation operation : {Operation::kAllReduce, Operation::kReduce, Operation::kReduceScatter,
                                    Operation::kAllGather, Operation::kBroadcast}) {
    for (const size_t count : {0, 1, 7, 4'097, 12'000, 200'003}) {
      for (const bool shared : {false, true}) {
        for (const bool in_place : {false, true}) {
          const auto salt = static_cast<unsigned>(all.size());
          all.push_back({operation, HDT_FLOAT32, HDT_SUM, in_place, count, static_cast<int>(salt) % ranks,
                         salt, shared});
        }
      }
    }
  }
  return all;
}

class Configured : public ::testing::TestWithParam<const char*> {};

TEST_P(Configured, EveryCollectiveOverTwoAndThreeNodes) {
  const Nodes nodes({"--class.default.algorithm", GetParam()});
  for (const Placement& placement :
       {Placement{0, 1}, Placement{1, 0, 0}, Placement{0, 1, 2}, Placement{2, 0, 1, 0}}) {
    SCOPED_TRACE(name_of(placement));
    nodes.run(placement, [&](Rank& self) {
      for (const Example& example : examples(self.ranks)) {
        ExampleRun run(example, self);
        run.start(nullptr);
        run.verify();
        HDT_EXPECT(hdtBarrier(self.comm, nullptr));
        if (::testing::Test::HasFailure()) return;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, Configured, ::testing::ValuesIn(kAlgorithms),
                         [](const auto& name) { return std::string(name.param); });

TEST(ConfiguredDifferently, MakesNoGroupAndNamesBothNodes) {
  TemporaryFolder folder;
  const NodeProcess first(folder, 0, {"--class.dp.algorithm", "bruck"});
  const NodeProcess second(folder, 1);
  ::setenv("HDT_SOCKET", first.socket().c_str(), 1);
  hdtUniqueId_t id;
  ASSERT_EQ(hdtGetUniqueId(&id), HDT_SUCCESS) << hdtGetLastError();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
      config.group_class = "dp";
      config.socket = rank == 0 ? first.socket().c_str() : second.socket().c_str();
      hdtComm_t comm = nullptr;
      EXPECT_EQ(hdtCommInitRank(&comm, 2, id, rank, &config), HDT_ERR_CONFIG);
      EXPECT_THAT(hdtGetLastError(), AllOf(HasSubstr("class dp"), HasSubstr("\"bruck\" on node n0"),
                                           HasSubstr("\"auto\" on node n1")));
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace hdt::testing
