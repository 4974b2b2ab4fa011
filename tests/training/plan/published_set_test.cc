// published_set_test.cc: the importer, on a set made here and, where HDT_VALIDATION_DIR names one, on the
// published one.
#include "training/plan/validate/published_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/training/data/temporary_folder.h"

namespace hdt::plan {
namespace {

using nlohmann::json;
using training::TemporaryFolder;

// Two kinds, three units, one plan of two stages.
class SmallSet {
 public:
  SmallSet() {
    for (const char* device : {"A", "B"}) {
      for (const char* layer : {"0", "1", "2"}) profiles["m"][device]["2"]["1"][layer] = {.5, .75, .1};
    }
    for (const char* layer : {"0", "1", "2"})
      sizes["m"]["1"][layer] = {{"params_bytes", 100}, {"act_output_bytes", 10}, {"act_mem_bytes", 30}};
    for (const auto& [from, to, rate] :
         {std::tuple{"A", "B", 1.0}, {"B", "A", 1.0}, {"A", "A", 9.0}, {"B", "B", 9.0}})
      links["z"][from]["1"]["z"][to]["1"] = {{0.0, 0.5, rate}, 1e9};
    plan = {{"zone", "z"}, {"mbs", 2}, {"gbs", 8}, {"real", 6.0}, {"max_mem", 1000}};
    plan["pipeline_list"] = {{{"layers_per_stage", {{0, 1}, {2, 3}}},
                              {"tmp_per_stage", {{{{{"A", 1, "z"}}, 1}}, {{{{"B", 1, "z"}}, 1}}}}}};
    // A stage needs a transformer layer: four units.
    for (const char* device : {"A", "B"}) profiles["m"][device]["2"]["1"]["3"] = {.5, .75, .1};
    sizes["m"]["1"]["3"] = sizes["m"]["1"]["2"];
  }

  Result<std::vector<PublishedSet>> import() const {
    const TemporaryFolder folder;
    training::write_all(folder.file("profiles.json"), profiles.dump());
    training::write_all(folder.file("links.json"), links.dump());
    training::write_all(folder.file("llm_info.json"), sizes.dump());
    std::filesystem::create_directory(folder.file("plans-x"));
    training::write_all(folder.file("plans-x/plan_config_N2.json"), plan.dump());
    return import_published_sets(folder.path());
  }

  json profiles, links, sizes, plan;
};

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
