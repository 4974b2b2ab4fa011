// published_set_test.cc: the importer, on a set made here and, where HDT_VALIDATION_DIR names one, on the
// published one.
#include "training/plan/validate/published_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/small_published_set.h"

namespace hdt::plan {
namespace {

using nlohmann::json;
using training::TemporaryFolder;

TEST(PublishedSet, BecomesProfileClusterModelAndPlans) {
  const auto sets = SmallSet().import();
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  ASSERT_EQ(sets.value().size(), 1u);
  const PublishedSet& set = sets.value().front();
  EXPECT_EQ(set.name, "plans-x");
  EXPECT_EQ(set.model.num_units(), 4);
  EXPECT_EQ(set.model.layers[1].parameter_bytes.at(1), 100);
  const LayerCost& cost = *set.profile.find({"A", "transformer", 1, 2});
  EXPECT_DOUBLE_EQ(cost.forward, .5);
  EXPECT_DOUBLE_EQ(cost.backward(), .75);
  EXPECT_EQ(cost.activation_bytes, 60);
  // .1 s are the step of an embedding, two layers and a head, 100 bytes each.
  EXPECT_DOUBLE_EQ(cost.update, .025);
  ASSERT_EQ(set.rows.size(), 1u);
  EXPECT_EQ(set.rows[0].name, "N2");
  EXPECT_EQ(set.rows[0].plan.replicas, (std::vector<Replica>{{2, 4, {{1, "A-1", 1}, {1, "B-1", 1}}}}));
  // 1 MiB: c; 4 MiB: 2 b + c. A kind with itself: inside a node 9 GB/s, between nodes what it reaches to
  // others.
  EXPECT_NEAR(set.profile.find_link("A", "B", false)->rate(1 << 20), 1e9, 1);
  EXPECT_NEAR(set.profile.find_link("A", "B", false)->rate(4 << 20), 2e9, 1);
  EXPECT_NEAR(set.profile.find_link("A", "A", true)->rate(1 << 20), 9e9, 1);
  EXPECT_NEAR(set.profile.find_link("A", "A", false)->rate(1 << 20), 1e9, 1);
}

TEST(PublishedSet, MessagesTakeTheRateOfOneGpuAndReductionsThatOfAll) {
  SmallSet set;
  set.links["z"]["A"]["4"]["z"]["B"]["4"] = {{0.0, 0.5, 3.0}, 1e9};
  const auto sets = set.import();
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  const Link& link = *sets.value().front().profile.find_link("A", "B", false);
  EXPECT_NEAR(link.rate(1 << 20), 1e9, 1);
  EXPECT_NEAR(link.allreduce_rate(1 << 20), 3e9, 1);
  // One number of GPUs: one rate for both.
  EXPECT_TRUE(sets.value().front().profile.find_link("A", "A", true)->allreduce.empty());
}

TEST(PublishedSet, BrokenOnesAreRefusedWithTheField) {
  const auto reason = [](const SmallSet& set) { return set.import().status().message(); };
  SmallSet set;
  set.profiles["m"]["A"]["2"]["1"]["1"][0] = 0;
  EXPECT_THAT(reason(set),
              testing::HasSubstr("profiles.json: m.A.2.1.1: 0 given, expected a number above 0"));
  set = {};
  set.sizes["m"]["1"].erase("2");
  EXPECT_THAT(reason(set), testing::HasSubstr("llm_info.json: '2' is missing"));
  set = {};
  set.profiles["m"].erase("B");
  EXPECT_THAT(reason(set), testing::HasSubstr("0 models have 4 layers and A, B, expected one"));
  set = {};
  set.links["z"]["A"]["1"]["z"].erase("B");
  set.links["z"]["B"]["1"]["z"].erase("A");
  EXPECT_THAT(reason(set), testing::HasSubstr("the profile has none between 'A' and 'B'"));
  set = {};
  set.plan.erase("real");
  EXPECT_THAT(reason(set), testing::HasSubstr("plan_config_N2.json: "));
  set = {};
  set.plan["gbs"] = 7;
  EXPECT_THAT(reason(set), testing::HasSubstr("a gbs that replicas and mbs divide"));
  EXPECT_THAT(import_published_sets("/nonexistent").status().message(),
              testing::HasSubstr("/nonexistent/profiles.json: cannot be read"));
}

TEST(PublishedSet, TheRealOne) {
  const char* folder = ::getenv("HDT_VALIDATION_DIR");
  if (!folder) GTEST_SKIP() << "HDT_VALIDATION_DIR names no folder with a published set";
  const auto sets = import_published_sets(folder);
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  ASSERT_EQ(sets.value().size(), 2u);
  const PublishedSet& gh200 = sets.value()[0];
  const PublishedSet& mixed = sets.value()[1];
  EXPECT_EQ(gh200.rows.size(), 15u);
  EXPECT_EQ(mixed.rows.size(), 9u);
  EXPECT_EQ(mixed.model.num_units(), 26);
  for (const Measurement& row : mixed.rows) EXPECT_EQ(row.left_out.empty(), row.name != "N3_D1") << row.name;
}

}  // namespace
}  // namespace hdt::plan
