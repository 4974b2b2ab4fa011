// recompute_tool_test.cc: hdt-plan search with recomputation: of whole layers, of attention alone, and where
// the profile does not know what the latter takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/plan_tool.h"

namespace hdt::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNotSearched = "attention computed again: the profile has no selective_more_seconds";

// Sixteen layers that fit in one pipeline only if some are recomputed.
class RecomputeSearch : public HdtPlanFiles {
 protected:
  RecomputeSearch() {
    Cluster small = example_cluster();
    for (Node& node : small.nodes) node.memory_bytes = int64_t{300} << 20;
    training::write_all(file("cluster.toml"), to_toml(small));
    training::write_all(file("model.toml"), to_toml(example_model(16)));
  }
  training::CommandOutput search(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"search",   file("cluster.toml"), file("model.toml"),
                                          "-p",       file("profile.toml"), "--global-batch-size",
                                          "4",        "--max-replicas",     "1",
                                          "--output", file("plan.toml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return hdt_plan(arguments);
  }
  // Whether the first stage, which keeps most, recomputes attention only.
  bool attention_only(const char* granularity) const {
    const auto run = search({"--recompute", "--recompute-granularity", granularity});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, Not(HasSubstr("attention computed again")));
    const Plan plan = read_plan(file("plan.toml")).value();
    EXPECT_GT(plan.replicas[0].stages[0].recomputed_layers, 0);
    return plan.replicas[0].stages[0].attention_only;
  }
};

TEST_F(RecomputeSearch, AttentionIsNotTriedWhereTheProfileDoesNotKnowIt) {
  const auto found = search({"--recompute"});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr(kNotSearched));
  EXPECT_FALSE(attention_only("full"));
  for (const std::vector<std::string>& equal : {std::vector<std::string>{}, {"--equal"}}) {
    std::vector<std::string> arguments = {"--recompute", "--recompute-granularity", "selective"};
    arguments.insert(arguments.end(), equal.begin(), equal.end());
    expect_refused(search(arguments), "no selective_more_seconds and selective_activation_bytes");
  }
  expect_refused(search({"--recompute-granularity", "full"}), "--recompute");
}

TEST_F(RecomputeSearch, TheGranularityThatIsFasterIsTaken) {
  Profile profile = example_profile();
  for (auto& [key, cost] : profile.compute)
    cost.recomputed_attention = {cost.forward / 10, cost.activation_bytes / 8};
  training::write_all(file("profile.toml"), to_toml(profile));
  EXPECT_TRUE(attention_only("selective"));
  EXPECT_TRUE(attention_only("any"));
  EXPECT_FALSE(attention_only("full"));
  for (auto& [key, cost] : profile.compute) cost.recomputed_attention->more_seconds = 2 * cost.forward;
  training::write_all(file("profile.toml"), to_toml(profile));
  EXPECT_FALSE(attention_only("any"));
  EXPECT_TRUE(attention_only("selective"));
}

}  // namespace
}  // namespace hdt::plan
