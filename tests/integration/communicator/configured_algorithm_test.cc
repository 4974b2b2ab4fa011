// configured_algorithm_test.cc: every collective gives the right result with every algorithm that can be
// configured, and nodes that are configured differently are told so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "tests/integration/communicator/example_run.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAlgorithms[] = {
    "ring", "halving_doubling", "recursive_doubling", "double_binary_tree", "bruck", "pairwise", "two_level"};

// Sanitizers look at memory, which types and reductions use alike; with all of them they take minutes.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kTypes = HDT_INT64 + 1;
constexpr size_t kCounts[] = {0, 7, 12'000, 200'003};
const std::vector<Placement> kPlacements{{0, 1}, {2, 0, 1, 0}};
#else
constexpr int kTypes = HDT_FLOAT8E5M2 + 1;
constexpr size_t kCounts[] = {0, 1, 7, 4'097, 12'000, 200'003};
const std::vector<Placement> kPlacements{{0, 1}, {1, 0, 0}, {0, 1, 2}, {2, 0, 1, 0}};
#endif

// Nothing, a part of a block, one chunk, and several; in ordinary memory and in memory that daemons use in
// place.
std::vector<Example> examples(int ranks) {
  std::vector<Example> all;
  for (const Operation operation : {Operation::kAllReduce, Operation::kReduce, Operation::kReduceScatter,
                                    Operation::kAllGather, Operation::kBroadcast}) {
    for (const size_t count : kCounts) {
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

// Every type with every reduction, of random counts.
std::vector<Example> every_type(int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Example> all;
  for (const Operation operation : {Operation::kAllReduce, Operation::kReduce, Operation::kReduceScatter,
                                    Operation::kAllGather, Operation::kBroadcast}) {
    for (int type = 0; type < kTypes; ++type) {
      for (const hdtRedOp_t op :
           {HDT_SUM, HDT_PROD, HDT_MIN, HDT_MAX, HDT_AVG, HDT_BAND, HDT_BOR, HDT_BXOR}) {
        if (operation >= Operation::kAllGather && op != HDT_SUM) continue;
        if (!can_reduce(static_cast<hdtDataType_t>(type), op)) continue;
        all.push_back({operation, static_cast<hdtDataType_t>(type), op, random() % 2 == 0, random() % 20'000,
                       static_cast<int>(random() % static_cast<unsigned>(ranks)),
                       static_cast<unsigned>(all.size()), random() % 2 == 0});
      }
    }
  }
  return all;
}

class Configured : public ::testing::TestWithParam<const char*> {};

TEST_P(Configured, EveryCollectiveOverTwoAndThreeNodes) {
  const Nodes nodes({"--class.default.algorithm", GetParam()});
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  // Over other backends than tcp bytes travel in another way; what is computed of them is the same.
  const bool other_backend = std::getenv("HDT_TEST_BACKEND") != nullptr;
  for (const Placement& placement : kPlacements) {
    SCOPED_TRACE(name_of(placement));
    const int ranks = static_cast<int>(placement.size());
    std::vector<Example> all = examples(ranks);
    if (!other_backend) {
      for (const Example& example : every_type(ranks, seed)) all.push_back(example);
    }
    nodes.run(placement, [&](Rank& self) {
      for (const Example& example : all) {
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
