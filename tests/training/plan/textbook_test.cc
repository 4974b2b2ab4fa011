// textbook_test.cc: search against the layouts that every engineer writes down first. They are written here
// from the numbers of ranks, and not by the search's own code.
#include "training/plan/search/textbook.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

// The layouts of a cluster: for each order of ranks, number of stages, micro-batch size and split.
class Layouts {
 public:
  Layouts(const PredictionInputs& inputs, const SearchOptions& options)
      : inputs_(inputs), batch_(options.global_batch_size), runtime_(options.runtime) {
    std::vector<std::string> ranks;
    std::vector<std::string> kinds;
    for (const Node& node : inputs.cluster.nodes) {
      ranks.insert(ranks.end(), node.devices, node.name);
      if (std::ranges::find(kinds, node.device) == kinds.end()) kinds.push_back(node.device);
    }
    of_ranks(ranks);
    // Sorted by kind, and each kind alone.
    std::vector<std::string> sorted;
    for (const std::string& kind : kinds) {
      std::vector<std::string> alone;
      for (const std::string& rank : ranks) {
        if (device_of(rank) == kind) alone.push_back(rank);
      }
      of_ranks(alone);
      sorted.insert(sorted.end(), alone.begin(), alone.end());
    }
    of_ranks(sorted);
  }
  double best() const { return best_; }
  int64_t played() const { return played_; }

 private:
  const std::string& device_of(const std::string& node) const {
    return inputs_.cluster.nodes[inputs_.cluster.index_of(node)].device;
  }

  void of_ranks(const std::vector<std::string>& ranks) {
    const auto all = static_cast<int>(ranks.size());
    for (int stages = 1; stages <= std::min(all, inputs_.model.num_layers()); ++stages) {
      const int replicas = all / stages;
      for (const bool pipeline_first : {true, false}) {
        // Rank of (replica, stage): Megatron's orders tp-pp-dp and tp-dp-pp.
        std::vector<std::vector<std::string>> nodes(replicas);
        for (int r = 0; r < replicas; ++r) {
          for (int s = 0; s < stages; ++s)
            nodes[r].push_back(ranks[pipeline_first ? r * stages + s : s * replicas + r]);
        }
        of_nodes(nodes);
      }
      // Blocks of as many nodes as there are stages.
      std::vector<std::string> names;
      for (const std::string& rank : ranks) {
        if (names.empty() || names.back() != rank) names.push_back(rank);
      }
      std::vector<std::vector<std::string>> blocks;
      for (size_t first = 0; first + stages <= names.size(); first += stages) {
        int devices = std::numeric_limits<int>::max();
        for (int s = 0; s < stages; ++s)
          devices =
              std::min(devices, inputs_.cluster.nodes[inputs_.cluster.index_of(names[first + s])].devices);
        for (int r = 0; r < devices; ++r)
          blocks.emplace_back(names.begin() + static_cast<int64_t>(first),
                              names.begin() + static_cast<int64_t>(first) + stages);
      }
      if (!blocks.empty()) of_nodes(blocks);
    }
  }

  void of_nodes(const std::vector<std::vector<std::string>>& nodes) {
    const auto stages = static_cast<int>(nodes.front().size());
    const int layers = inputs_.model.num_layers();
    std::vector<int> even(stages, layers / stages);
    for (int s = 0; s < layers % stages; ++s) ++even[s];
    // Embedding and head as a layer each, where that comes out even.
    std::vector<int> light(stages, (layers + 2) / stages);
    --light.front();
    --light.back();
    for (const int size : inputs_.profile.micro_batch_sizes(device_of(nodes[0][0]), "block", 1)) {
      const int64_t samples = int64_t{size} * static_cast<int64_t>(nodes.size());
      if (batch_ % samples != 0) continue;
      play(nodes, even, size, static_cast<int>(batch_ / samples));
      if (stages > 1 && (layers + 2) % stages == 0 && light.front() > 0)
        play(nodes, light, size, static_cast<int>(batch_ / samples));
    }
  }

  void play(const std::vector<std::vector<std::string>>& nodes, const std::vector<int>& split, int size,
            int count) {
    Plan plan;
    plan.runtime = runtime_;
    for (const std::vector<std::string>& replica : nodes) {
      plan.replicas.push_back({size, count, {}});
      for (size_t s = 0; s < replica.size(); ++s)
        plan.replicas.back().stages.push_back({split[s], replica[s], 1});
    }
    const auto prediction = predict(inputs_, plan);
    ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
    if (memory_excess(inputs_.cluster, plan, prediction.value()).bytes > 0) return;
    ++played_;
    best_ = std::min(best_, prediction.value().step_seconds);
  }

  const PredictionInputs& inputs_;
  const int64_t batch_;
  const Runtime runtime_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t played_ = 0;
};

// HDT_TEST_TEXTBOOK_CASES asks for another number of cases than the suite has.
int textbook_cases() {
  const char* const given = std::getenv("HDT_TEST_TEXTBOOK_CASES");
  return given ? std::atoi(given) : HDT_TEXTBOOK_CASES;
}

TEST(Textbook, SearchNeverLosesToIt) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int faster = 0;
  int compared = 0;
  double most = 1;
  double sum = 0;
  int64_t played = 0;
  // A cluster in which no textbook layout has memory or a batch that comes out even is drawn again.
  const int draws = 20 * textbook_cases();
  for (int round = 0; compared < textbook_cases() && round < draws; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", case " << round);
    const Model model = example_model(any(4, 32));
    Profile profile;
    Cluster cluster;
    const int kinds = any(1, 3);
    const double between = std::vector<double>{3e8, 3e9, 3e10}[any(0, 2)];
    for (int kind = 0; kind < kinds; ++kind) {
      const std::string device(1, static_cast<char>('A' + kind));
      const double slowness = kind == 0 ? 1 : .5 * any(2, 8);
      for (const int size : {1, 2, 4}) {
        for (const LayerKind& layer : model.layers) {
          const double seconds = slowness * (.3 + .7 * size) * (layer.name == "head" ? .01 : .005);
          profile.compute[{device, layer.name, 1, size}] = {seconds, seconds, seconds, .001,
                                                            int64_t{size} * (64 << 20)};
        }
      }
      profile.links[{device, device, true}] = {1e-6, {{1e6, 1e11}}};
      for (int other = 0; other <= kind; ++other)
        profile.links[{device, std::string(1, static_cast<char>('A' + other)), false}] = {1e-5,
                                                                                          {{1e6, between}}};
    }
    const int devices = any(1, 8);
    for (int node = any(2, 16); node > 0; --node)
      cluster.nodes.push_back({"n" + std::to_string(node),
                               std::string(1, static_cast<char>('A' + any(0, kinds - 1))),
                               any(0, 3) == 0 ? any(1, 8) : devices, int64_t{any(1, 16)} << 30});
    SearchOptions options;
    options.global_batch_size = int64_t{1} << any(3, 8);
    // By turns, reductions are those of hdt-train and those of other engines.
    if (round % 2 == 1) options.runtime.reduction = ReductionKind::kHdt;
    const PredictionInputs inputs{cluster, model, profile, {}};
    const Layouts layouts(inputs, options);
    played += layouts.played();
    if (layouts.best() == std::numeric_limits<double>::infinity()) continue;
    const auto found = search(inputs, options);
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    const auto prediction = predict(inputs, found.value().plan);
    ASSERT_TRUE(prediction.is_ok());
    EXPECT_EQ(memory_excess(cluster, found.value().plan, prediction.value()).bytes, 0);
    EXPECT_EQ(found.value().plan.global_batch_size(), options.global_batch_size);
    const double ratio = layouts.best() / found.value().step_seconds;
    EXPECT_GE(ratio, 1 - 1e-9);
    ++compared;
    faster += ratio > 1.001;
    most = std::max(most, ratio);
    sum += ratio;
  }
  EXPECT_EQ(compared, textbook_cases()) << "of " << draws << " clusters with seed " << seed;
  std::cout << compared << " clusters, " << played << " layouts; search is faster on " << faster << ", by "
            << sum / compared << " times on average and " << most << " times at most\n";
}

// Four nodes of eight devices and slow links: a long pipeline across the nodes is faster than any short one.
TEST(Textbook, PipelinesGoAcrossNodesWhereLinksAreSlow) {
  Model model;
  model.name = "large";
  model.layers = {{"embedding", 1, 32 << 20, {{1, 1 << 30}}},
                  {"block", 32, 32 << 20, {{1, 416 << 20}}},
                  {"head", 1, 32 << 20, {{1, 1 << 30}}}};
  Profile profile;
  for (const auto& [layer, seconds] : {std::pair{"embedding", .0001}, {"block", .005}, {"head", .011}})
    profile.compute[{"d", layer, 1, 1}] = {seconds, seconds, seconds, .002, 512 << 20};
  profile.links[{"d", "d", true}] = {1e-6, {{1e6, 4e11}}};
  profile.links[{"d", "d", false}] = {2e-5, {{1e6, 3e9}}};
  Cluster cluster;
  for (const char* name : {"a", "b", "c", "d"}) cluster.nodes.push_back({name, "d", 8, int64_t{141} << 30});
  Plan by_hand;
  for (int r = 0; r < 8; ++r)
    by_hand.replicas.push_back({1, 8, {{9, "a", 1}, {9, "b", 1}, {8, "c", 1}, {6, "d", 1}}});
  const PredictionInputs inputs{cluster, model, profile, {}};
  SearchOptions options;
  options.global_batch_size = 64;
  const auto found = search(inputs, options);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_LE(found.value().step_seconds, predict_seconds(inputs, by_hand).value());
}

// What the same search takes by hand-written plans of a published comparison; skipped where they are absent.
TEST(Textbook, FourNodesAreAsFastAsByHand) {
  const char* const folder = std::getenv("HDT_PLANNER_CASES");
  if (!folder) GTEST_SKIP() << "HDT_PLANNER_CASES names no folder";
  const std::string path = folder;
  const auto cluster = read_cluster(path + "/cluster.toml");
  const auto model = read_model(path + "/model.toml");
  const auto profile = read_profile(path + "/profile.toml");
  ASSERT_TRUE(cluster.is_ok() && model.is_ok() && profile.is_ok());
  for (const auto& [batch, seconds] : {std::pair{64, 3.11}, {128, 5.32}, {256, 9.58}}) {
    SearchOptions options;
    options.global_batch_size = batch;
    options.runtime.reduction = reduction_of(options.engine);
    const auto found = search({cluster.value(), model.value(), profile.value(), {}}, options);
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    EXPECT_LE(found.value().step_seconds, seconds) << "batch " << batch;
  }
}

}  // namespace
}  // namespace hdt::plan
