// collectives_test.cc: every collective, type, reduction, place and kind of size over every shape of group.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/integration/communicator/example_run.h"

namespace hdt::testing {
namespace {

constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kReduce, Operation::kReduceScatter,
                                     Operation::kAllGather, Operation::kBroadcast};
// The thread sanitizer looks at who touches memory when, which types and reductions do not change; with all
// of them it takes minutes.
#if defined(__SANITIZE_THREAD__)
constexpr hdtDataType_t kTypes[] = {HDT_INT32, HDT_BFLOAT16};
constexpr hdtRedOp_t kReductions[] = {HDT_SUM, HDT_AVG};
constexpr size_t kManyChunks[] = {9'001, 200'003};
#else
constexpr hdtDataType_t kTypes[] = {HDT_INT32,   HDT_INT64,  HDT_FLOAT16,    HDT_BFLOAT16,  HDT_FLOAT32,
                                    HDT_FLOAT64, HDT_INT8,   HDT_UINT8,      HDT_INT16,     HDT_UINT16,
                                    HDT_UINT32,  HDT_UINT64, HDT_FLOAT8E4M3, HDT_FLOAT8E5M2};
constexpr hdtRedOp_t kReductions[] = {HDT_SUM, HDT_PROD, HDT_MIN, HDT_MAX,
                                      HDT_AVG, HDT_BAND, HDT_BOR, HDT_BXOR};
constexpr size_t kManyChunks[] = {9'001, 200'003, 1'500'001};
#endif
constexpr size_t kSizes[] = {0, 1, 7, 4097};

std::vector<Example> every_example(int ranks) {
  std::vector<Example> all;
  // Over other backends than tcp each operation, type and reduction once: what differs there is how bytes
  // travel.
  const bool other_backend = std::getenv("HDT_TEST_BACKEND") != nullptr;
  // The adapters of the virtual machine of tools/rdma-vm are emulated, and maybe its processors: what takes
  // seconds takes minutes.
  const size_t most = std::getenv("RDMA_VM") == nullptr ? SIZE_MAX : 500'000;
  const auto add = [&](Operation operation, hdtDataType_t type, hdtRedOp_t op, size_t count) {
    const bool only = all.size() % 2 == 0;
    for (const bool in_place : {false, true}) {
      const auto salt = static_cast<unsigned>(all.size());
      if (other_backend && in_place != only) continue;
      const bool shared = (salt / 2) % 2 == 1;
      const bool mixed = (salt / 4) % 3 == 2;
      all.push_back(
          {operation, type, op, in_place, count, static_cast<int>(salt / 2) % ranks, salt, shared, mixed});
    }
  };
  for (Operation operation : kOperations) {
    for (hdtDataType_t type : kTypes) {
      for (hdtRedOp_t op : kReductions) {
        if (operation >= Operation::kAllGather && op != HDT_SUM) continue;
        if (!can_reduce(type, op)) continue;
        // The arithmetic of every type is the kernels' test: here the first six go through all sizes, the
        // others one.
        for (size_t count : kSizes) {
          if ((type <= HDT_FLOAT64 && !other_backend) || count == kSizes[3]) add(operation, type, op, count);
        }
      }
    }
    for (size_t count : kManyChunks) {
      if (count > most) continue;
      add(operation, HDT_FLOAT32, HDT_SUM, count);
      add(operation, HDT_FLOAT32, HDT_SUM, count);  // once from memory of either kind
    }
    add(operation, HDT_BFLOAT16, HDT_AVG, kManyChunks[1]);
    add(operation, HDT_BFLOAT16, HDT_AVG, kManyChunks[1]);
  }
  return all;
}

class Shape : public ::testing::TestWithParam<Placement> {};

TEST_P(Shape, EveryCollective) {
  const auto examples = every_example(static_cast<int>(GetParam().size()));
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    for (const Example& example : examples) {
      ExampleRun run(example, self);
      run.start(nullptr);
      run.verify();
      if (::testing::Test::HasFailure()) return;
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

// More chunks than there are slots, with memory of different kinds in one call, at one rank or from rank to
// rank: between nodes some buffers are then used in place, and what stands for the others goes through slots
// that have to become free meanwhile.
class OneRankANode : public ::testing::TestWithParam<Placement> {};

TEST_P(OneRankANode, BuffersOfDifferentKindsAndManyChunks) {
  if (std::getenv("RDMA_VM") != nullptr) GTEST_SKIP() << "emulated adapters take minutes for it";
  const int ranks = static_cast<int>(GetParam().size());
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    for (const Operation operation : kOperations) {
      for (int kinds = 0; kinds < 4; ++kinds) {
        const bool shared = (kinds + (kinds >= 2 ? self.rank : 0)) % 2 == 1;
        const bool mixed = kinds < 2;
        ExampleRun run({operation, HDT_FLOAT32, HDT_AVG, false, 2'500'001, kinds % ranks,
                        static_cast<unsigned>(kinds), shared, mixed},
                       self);
        run.start(nullptr);
        run.verify();
        if (::testing::Test::HasFailure()) return;
      }
    }
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

TEST_P(Shape, RandomCallsInFlight) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int ranks = static_cast<int>(GetParam().size());
  std::vector<Example> examples;
  for (unsigned i = 0; i < 40; ++i) {
    const size_t most = size_t{1} << random() % 19;
    const hdtDataType_t type = kTypes[random() % std::size(kTypes)];
    const hdtRedOp_t op = kReductions[random() % std::size(kReductions)];
    examples.push_back({kOperations[random() % std::size(kOperations)], type,
                        can_reduce(type, op) ? op : HDT_SUM, random() % 2 == 0, random() % (most + 1),
                        static_cast<int>(random() % static_cast<unsigned>(ranks)), i, random() % 2 == 0,
                        random() % 3 == 0});
  }
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    std::vector<std::unique_ptr<ExampleRun>> runs;
    std::vector<hdtRequest_t> requests(examples.size());
    for (size_t i = 0; i < examples.size(); ++i) {
      runs.push_back(std::make_unique<ExampleRun>(examples[i], self));
      runs.back()->start(&requests[i]);
    }
    for (size_t i = requests.size(); i-- > 0;) HDT_EXPECT(hdtWait(&requests[i], -1));
    for (const auto& run : runs) run->verify();
  });
}

TEST_P(Shape, TellsItsNodes) {
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    int ranks = -1;
    int rank = -1;
    int nodes = -1;
    HDT_EXPECT(hdtCommCount(self.comm, &ranks));
    HDT_EXPECT(hdtCommUserRank(self.comm, &rank));
    HDT_EXPECT(hdtCommNodes(self.comm, &nodes));
    EXPECT_EQ(ranks, self.ranks);
    EXPECT_EQ(rank, self.rank);
    EXPECT_EQ(nodes, *std::max_element(GetParam().begin(), GetParam().end()) + 1);
    for (size_t a = 0; a < GetParam().size(); ++a) {
      for (size_t b = 0; b < GetParam().size(); ++b) {
        int node_a = -1;
        int node_b = -1;
        HDT_EXPECT(hdtCommNodeOf(self.comm, static_cast<int>(a), &node_a));
        HDT_EXPECT(hdtCommNodeOf(self.comm, static_cast<int>(b), &node_b));
        EXPECT_EQ(node_a == node_b, GetParam()[a] == GetParam()[b]);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Shape,
                         ::testing::Values(Placement{0}, Placement{0, 0}, Placement{0, 0, 0},
                                           Placement{0, 0, 0, 0}, Placement{0, 1}, Placement{0, 0, 1, 1},
                                           Placement{0, 1, 0, 1}, Placement{0, 0, 0, 1}, Placement{0, 1, 2}),
                         [](const auto& shape) { return name_of(shape.param); });

INSTANTIATE_TEST_SUITE_P(All, OneRankANode, ::testing::Values(Placement{0, 1}, Placement{0, 1, 2}),
                         [](const auto& shape) { return name_of(shape.param); });

}  // namespace
}  // namespace hdt::testing
