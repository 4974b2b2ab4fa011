// search_test.cc: search against enumeration of every plan with the same predictor.
#include "training/plan/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/training/plan/examples.h"
#include "tests/training/plan/random_case.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/equal_split.h"

namespace hdt::plan {
namespace {

// Plays every plan of the space that search_space.h describes, by a way of its own: each worker goes to a
// replica or stays unused; what is not in the space's order is dropped.
class Enumeration {
 public:
  Enumeration(const PredictionInputs& inputs, const SearchOptions& options)
      : inputs_(inputs), batch_(options.global_batch_size), recompute_(options.recompute) {
    for (const Node& node : inputs.cluster.nodes) {
      for (int i = 0; i < node.devices; ++i) workers_.push_back(&node);
    }
    for (const Node& node : inputs.cluster.nodes) {
      if (std::ranges::find(kinds_, node.kind()) == kinds_.end()) kinds_.push_back(node.kind());
    }
    for (const ScheduleKind schedule : options.schedules) {
      runtime_ = options.runtime;
      runtime_.schedule = schedule;
      for (const bool sharded : {false, true}) {
        if (sharded && !options.shard_optimizer) continue;
        runtime_.use_distributed_optimizer = sharded;
        for (const int size : {1, 2}) {
          if (batch_ % size != 0) continue;
          size_ = size;
          std::vector<int> replica_of;
          assign(replica_of);
        }
      }
    }
  }
  double best() const { return best_; }
  int64_t played() const { return played_; }

 private:
  void assign(std::vector<int>& replica_of) {
    if (replica_of.size() < workers_.size()) {
      // The value after the last replica stands for "unused"; workers of a kind are taken in order.
      int first = 0;
      for (size_t before = 0; before < replica_of.size(); ++before) {
        if (workers_[before]->kind() == workers_[replica_of.size()]->kind())
          first = std::max(first, replica_of[before]);
      }
      for (int replica = first; replica <= most_replicas(); ++replica) {
        replica_of.push_back(replica);
        assign(replica_of);
        replica_of.pop_back();
      }
      return;
    }
    std::vector<std::vector<int>> counts(workers_.size(), std::vector<int>(kinds_.size(), 0));
    std::vector<std::vector<std::vector<const Node*>>> nodes(
        workers_.size(), std::vector<std::vector<const Node*>>(kinds_.size()));
    for (size_t i = 0; i < workers_.size(); ++i) {
      const auto kind = std::ranges::find(kinds_, workers_[i]->kind()) - kinds_.begin();
      if (replica_of[i] == most_replicas()) continue;
      ++counts[replica_of[i]][kind];
      nodes[replica_of[i]][kind].push_back(workers_[i]);
    }
    if (!std::ranges::is_sorted(counts, std::greater<>())) return;
    std::vector<std::vector<std::vector<const Node*>>> used;
    for (size_t replica = 0; replica < counts.size(); ++replica) {
      if (std::ranges::count(counts[replica], 0) < static_cast<int>(kinds_.size()))
        used.push_back(nodes[replica]);
    }
    if (used.empty()) return;
    std::vector<std::vector<const Node*>> stages;
    order(used, stages);
  }

  // Each has a micro-batch.
  int most_replicas() const {
    return static_cast<int>(std::min<int64_t>(static_cast<int64_t>(workers_.size()), batch_ / size_));
  }

  void order(const std::vector<std::vector<std::vector<const Node*>>>& used,
             std::vector<std::vector<const Node*>>& stages) {
    if (stages.size() == used.size()) {
      Plan plan;
      plan.runtime = runtime_;
      cut(stages, static_cast<int>(batch_) / size_, plan);
      return;
    }
    std::vector<size_t> kinds;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (!used[stages.size()][kind].empty()) kinds.push_back(kind);
    }
    do {
      std::vector<const Node*> row;
      for (const size_t kind : kinds) {
        const auto& nodes = used[stages.size()][kind];
        row.insert(row.end(), nodes.begin(), nodes.end());
      }
      stages.push_back(row);
      order(used, stages);
      stages.pop_back();
    } while (std::ranges::next_permutation(kinds).found);
  }

  // All micro-batch counts and layer splits of the next replica.
  void cut(const std::vector<std::vector<const Node*>>& stages, int left, Plan& plan) {
    const size_t replica = plan.replicas.size();
    if (replica == stages.size()) {
      if (left == 0) play(plan);
      return;
    }
    for (int count = 1; count <= left; ++count) {
      plan.replicas.push_back({size_, count, {}});
      split(stages, left - count, inputs_.model.num_layers(), plan);
      plan.replicas.pop_back();
    }
  }

  void split(const std::vector<std::vector<const Node*>>& stages, int batches_left, int layers_left,
             Plan& plan) {
    const std::vector<const Node*>& nodes = stages[plan.replicas.size() - 1];
    const size_t stage = plan.replicas.back().stages.size();
    if (stage == nodes.size()) {
      if (layers_left == 0) cut(stages, batches_left, plan);
      return;
    }
    for (int layers = 1; layers <= layers_left; ++layers) {
      plan.replicas.back().stages.push_back({layers, nodes[stage]->name, 1});
      split(stages, batches_left, layers_left - layers, plan);
      plan.replicas.back().stages.pop_back();
    }
  }

  void play(const Plan& plan) {
    ++played_;
    best_ = std::min(best_, fitted_seconds(inputs_, plan, recompute_));
  }

  const PredictionInputs& inputs_;
  const int64_t batch_;
  const RecomputeChoice recompute_;
  Runtime runtime_;
  int size_ = 1;
  std::vector<const Node*> workers_;
  std::vector<std::string> kinds_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t played_ = 0;
};

// Not under sanitizers: a few of the cases, and none of the large ones, each of which takes a minute there.
constexpr bool kAllCases = HDT_SEARCH_CASES >= 120;
constexpr int kCases = HDT_SEARCH_CASES;

TEST(Search, IsAsGoodAsEnumerationOfNeighbours) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  int64_t searched = 0;
  int64_t enumerated = 0;
  int fitting = 0;
  int recomputing = 0;
  int attention_only = 0;
  int zero_bubble = 0;
  int eager = 0;
  int sharded = 0;
  for (int round = 0; round < kCases; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", case " << round);
    const bool large = kAllCases && round % 60 == 0;
    const RandomCase made(random, large);
    const PredictionInputs inputs{made.cluster, made.model, made.profile, {}};
    const Enumeration all(inputs, made.options);
    const auto found = search(inputs, made.options);
    enumerated += all.played();
    if (all.best() == std::numeric_limits<double>::infinity()) {
      // Where no plan of the neighbours' shapes fits, one of another shape may.
      EXPECT_FALSE(large && found.is_ok());
    } else {
      ASSERT_TRUE(found.is_ok()) << found.status().message();
      // Replicas with other micro-batch sizes and orders of devices may be faster.
      EXPECT_LE(found.value().step_seconds, all.best() * (1 + 1e-9));
      EXPECT_EQ(found.value().proof, large ? SearchProof::kBestOfNeighbours : SearchProof::kBest);
      // The plan is what it says, and fits.
      const auto prediction = predict(inputs, found.value().plan);
      ASSERT_TRUE(prediction.is_ok());
      EXPECT_EQ(prediction.value().step_seconds, found.value().step_seconds);
      EXPECT_EQ(memory_excess(made.cluster, found.value().plan, prediction.value()).bytes, 0);
      EXPECT_EQ(found.value().plan.global_batch_size(), made.options.global_batch_size);
      searched += found.value().predictions;
      ++fitting;
      const Plan& plan = found.value().plan;
      zero_bubble += plan.runtime.schedule == ScheduleKind::kZeroBubble;
      eager += plan.runtime.schedule == ScheduleKind::kEager;
      sharded += plan.runtime.use_distributed_optimizer;
      recomputing += std::ranges::any_of(plan.replicas, [](const Replica& replica) {
        return std::ranges::any_of(replica.stages,
                                   [](const Stage& stage) { return stage.recomputed_layers > 0; });
      });
      attention_only += std::ranges::any_of(plan.replicas, [](const Replica& replica) {
        return std::ranges::any_of(replica.stages, &Stage::attention_only);
      });
    }
    if (testing::Test::HasFailure()) return;
  }
  if (kAllCases) {  // of a few, none may be of a kind
    EXPECT_GT(fitting, kCases / 2);
    EXPECT_GT(recomputing, 0);
    EXPECT_GT(zero_bubble, 0);
    EXPECT_GT(eager, 0);
    EXPECT_GT(sharded, 0);
  }
  std::cout << fitting << " cases with a plan, " << recomputing << " of them recompute, " << attention_only
            << " of these attention only, " << sharded << " shard the optimizer's states, " << zero_bubble
            << " have no bubbles; " << searched << " plans played of " << enumerated << "\n";
}

TEST(Search, SplitsUnequallyWhereDevicesAreUnequal) {
  // "slow" needs twice the time. With the embedding (0.1 of a layer) on the slow device and the head (2
  // layers) on the fast one, 4 and 8 of 12 layers are 8.2 and 10; 5 and 7 would be 10.2 and 9.
  const Cluster cluster{{{"f", "fast", 1, int64_t{1} << 40}, {"s", "slow", 1, int64_t{1} << 40}}};
  const Model model = example_model(12);
  const Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 64;
  options.most_replicas = 1;
  const auto found = search({cluster, model, profile, {}}, options);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  ASSERT_EQ(found.value().plan.replicas[0].stages.size(), 2u);
  EXPECT_EQ(found.value().plan.replicas[0].stages, (std::vector<Stage>{{4, "s", 1}, {8, "f", 1}}));
}

TEST(Search, WhatDoesNotFitIsSaidWithTheDeviceAndTheAmount) {
  Cluster cluster = example_cluster();
  for (Node& node : cluster.nodes) node.memory_bytes = 1 << 20;
  const Model model = example_model();
  const Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 4;
  EXPECT_THAT(
      search({cluster, model, profile, {}}, options).status().message(),
      testing::ContainsRegex("fits memory in no split: at best 0.[0-9]+ GiB are missing on each device of "
                             "kind '(fast|slow)'"));
  options.global_batch_size = 0;
  EXPECT_FALSE(search({cluster, model, profile, {}}, options).is_ok());
}

// One search for each way: all shapes, by classes, equal splits.
TEST(Search, NodesWithoutALinkAreNeverPutTogetherAndSaid) {
  const Cluster small = example_cluster();
  Cluster large = small;
  for (Node& node : large.nodes) node.devices = 4;
  const Model model = example_model();
  Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 8;
  const auto check = [&](const Result<SearchResult>& found, const std::string& what) {
    ASSERT_TRUE(found.is_ok()) << what << ": " << found.status().message();
    std::set<std::string> devices;
    for (const Replica& replica : found.value().plan.replicas) {
      for (const Stage& stage : replica.stages)
        devices.insert(small.nodes[small.index_of(stage.node)].device);
    }
    EXPECT_EQ(devices.size(), 1u) << what;
    ASSERT_EQ(found.value().left_out.size(), 1u) << what;
    const LeftOut& left = found.value().left_out[0];
    EXPECT_GT(left.placements, 0) << what;
    EXPECT_EQ(left.link.from_kind, "fast") << what;
    EXPECT_EQ(left.link.to_kind, "slow") << what;
    EXPECT_TRUE(left.link.from == "a" || left.link.from == "c") << what << ": " << left.link.from;
    EXPECT_TRUE(left.link.to == "b" || left.link.to == "d") << what << ": " << left.link.to;
    EXPECT_THAT(
        left_out_texts(found.value().left_out),
        testing::ElementsAre(testing::MatchesRegex(
            "left out: [0-9]+ placements? of stages: no link between nodes '[ac]' and '[bd]': the profile "
            "has none between 'fast' and 'slow'")))
        << what;
  };
  for (const Cluster& cluster : {small, large}) {
    const auto whole = search({cluster, model, profile, {}}, options);
    ASSERT_TRUE(whole.is_ok()) << whole.status().message();
    EXPECT_TRUE(whole.value().left_out.empty());
  }
  profile.links.erase({"fast", "slow", false});
  check(search({small, model, profile, {}}, options), "all shapes");
  check(search({large, model, profile, {}}, options), "classes");
  check(search_equal_split({small, model, profile, {}}, options), "equal splits");
}

TEST(Search, WhatWasLeftOutIsSaidIfNothingIsLeft) {
  // Each node has one device that cannot hold the model alone.
  Cluster cluster = example_cluster();
  for (Node& node : cluster.nodes) {
    node.devices = 1;
    node.memory_bytes = int64_t{600} << 20;
  }
  const Model model = example_model(12);
  Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 4;
  ASSERT_TRUE(search({cluster, model, profile, {}}, options).is_ok());
  std::erase_if(profile.links, [](const auto& link) { return !link.first.inside; });
  const auto found = search({cluster, model, profile, {}}, options);
  EXPECT_EQ(found.status().code(), Code::kConfig);
  EXPECT_THAT(
      found.status().message(),
      testing::AllOf(testing::HasSubstr("fits memory in no split"),
                     testing::HasSubstr("no link between nodes 'a' and 'c': the profile has none between "
                                        "'fast' and 'fast'")));
}

TEST(Search, OfManyPairsWithoutALinkSomeAreNamed) {
  std::vector<LeftOut> left_out;
  for (int i = 0; i < 10; ++i) left_out.push_back({{"a", "b", "x", "y", "link", "none"}, i + 1});
  const std::vector<std::string> texts = left_out_texts(left_out);
  ASSERT_EQ(texts.size(), 9u);
  EXPECT_THAT(texts[0], testing::StartsWith("left out: 1 placement of stages: "));
  EXPECT_THAT(texts[8], testing::HasSubstr("2 other pairs"));
}

TEST(Search, EndsEarlyWhenToldTo) {
  const Cluster cluster = example_cluster();
  const Model model = example_model(8);
  const Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 32;
  options.most_predictions = 3;
  const auto found = search({cluster, model, profile, {}}, options);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value().proof, SearchProof::kEndedEarly);
  EXPECT_EQ(found.value().predictions, 3);
}

// The ways to give 128 micro-batches to a few replicas use up the budget, but not before every shape had its
// first plan: one replica a device, with micro-batches by its speed, is not missed.
TEST(Search, ABudgetThatEndsEarlyLeavesNoDeviceIdle) {
  Cluster cluster = example_cluster();
  const Model model = example_model(16);
  Profile profile = example_profile();
  // "a" and "c" are "fast", "b" is "slow", and "d" is of a third speed.
  for (const auto& [key, cost] : example_profile().compute) {
    if (key.device != "slow") continue;
    LayerCost slower = cost;
    for (double* const time : {&slower.forward, &slower.input_gradient, &slower.weight_gradient})
      *time *= 1.5;
    profile.compute[{"slower", key.layer, key.tensor_parallel, key.micro_batch_size}] = slower;
  }
  profile.links[{"slower", "slower", true}] = {0, {{1e6, 1e10}}};
  for (const char* other : {"fast", "slow", "slower"})
    profile.links[{"slower", other, false}] = {0, {{1e6, 1e9}}};
  cluster.nodes[3].device = "slower";
  SearchOptions options;
  options.global_batch_size = 128;
  options.most_predictions = 20'000;
  Plan by_speed;
  by_speed.runtime = options.runtime;
  for (const auto& [node, count] :
       {std::pair{"a", 22}, {"a", 22}, {"c", 22}, {"c", 21}, {"b", 11}, {"b", 11}, {"d", 10}, {"d", 9}})
    by_speed.replicas.push_back({1, count, {{16, node, 1}}});
  const PredictionInputs inputs{cluster, model, profile, {}};
  const auto expected = predict_seconds(inputs, by_speed);
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  const auto found = search(inputs, options);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_LE(found.value().step_seconds, expected.value());
}

}  // namespace
}  // namespace hdt::plan
