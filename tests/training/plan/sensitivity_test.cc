// sensitivity_test.cc: the figure of each change is that of a prediction from files with that change.
#include "training/plan/output/sensitivity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

const Change* find(const std::vector<Change>& changes, const std::string& what) {
  const auto found = std::ranges::find(changes, what, &Change::what);
  return found == changes.end() ? nullptr : &*found;
}

TEST(Sensitivity, TheSlowStageIsWhatHelps) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  const Profile profile = example_profile();
  Plan plan;
  plan.replicas = {{1, 8, {{2, "a", 1}, {2, "b", 1}}}};  // the slow stage has the head, too
  const auto found = changes({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value().front().what, "slow a tenth faster");
  const double step = predict({cluster, model, profile, {}}, plan).value().step_seconds;
  for (const Change& change : found.value()) EXPECT_LE(change.step_seconds, step + 1e-12) << change.what;
  EXPECT_LT(found.value().front().step_seconds, .95 * step);
}

// Three equal links in a ring: one alone changes nothing, as the others are as slow, and all of them do.
TEST(Sensitivity, EqualLinksHelpTogether) {
  Cluster cluster;
  for (const char* device : {"x", "y", "z"}) cluster.nodes.push_back({device, device, 1, int64_t{1} << 40});
  const Model model = example_model();
  Profile profile;
  for (const Node& node : cluster.nodes) {
    for (const auto& [key, cost] : example_profile().compute) {
      if (key.device == "fast")
        profile.compute[{node.device, key.layer, key.tensor_parallel, key.micro_batch_size}] = cost;
    }
    for (const Node& other : cluster.nodes)
      if (node.name < other.name)
        profile.links[{node.device, other.device, false}] = {0, {{1, 1e8}}, {{1, 1e7}}};
  }
  Plan plan;
  for (const Node& node : cluster.nodes) plan.replicas.push_back({1, 2, {{4, node.name, 1}}});
  const PredictionInputs inputs{cluster, model, profile, {}};
  const double step = predict_seconds(inputs, plan).value();
  const auto found = changes(inputs, plan);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  const Change* const one = find(found.value(), "link x - y twice as fast");
  const Change* const all = find(found.value(), "all links between nodes twice as fast");
  ASSERT_TRUE(one != nullptr && all != nullptr);
  EXPECT_NEAR(one->step_seconds, step, 1e-9);
  EXPECT_LT(all->step_seconds, .6 * step);
  EXPECT_EQ(all->links.size(), 3U);
  EXPECT_EQ(find(found.value(), "all links inside nodes twice as fast"), nullptr);
}

TEST(Sensitivity, MemoryHelpsWhereLayersAreRecomputed) {
  Cluster cluster = example_cluster();
  const Model model = example_model(16);
  const Profile profile = example_profile();
  SearchOptions options;
  options.global_batch_size = 8;
  options.most_replicas = 1;
  options.recompute = {.layers = true};
  for (Node& node : cluster.nodes) node.memory_bytes = int64_t{300} << 20;
  const PredictionInputs inputs{cluster, model, profile, {}};
  const auto searched = search(inputs, options);
  ASSERT_TRUE(searched.is_ok()) << searched.status().message();
  const Plan& plan = searched.value().plan;
  const auto found = changes(inputs, plan);
  ASSERT_TRUE(found.is_ok());
  // By trying out all numbers, stage by stage.
  for (const std::string device : {"fast", "slow"}) {
    Cluster larger = cluster;
    for (Node& node : larger.nodes) node.memory_bytes *= node.device == device ? 2 : 1;
    Plan lighter = plan;
    for (Stage& stage : lighter.replicas[0].stages) {
      const Node& node = larger.nodes[larger.index_of(stage.node)];
      if (node.device != device) continue;
      for (stage.recomputed_layers = 0;; ++stage.recomputed_layers) {
        const auto worker = static_cast<size_t>(&stage - lighter.replicas[0].stages.data());
        if (peak_memory_bytes(inputs, lighter)[worker] <= static_cast<double>(node.memory_bytes)) break;
      }
    }
    const Change* const change = find(found.value(), device + " with twice the memory");
    ASSERT_NE(change, nullptr);
    EXPECT_NEAR(change->step_seconds, predict_seconds({larger, model, profile, {}}, lighter).value(), 1e-12);
  }
  EXPECT_LT(find(found.value(), "fast with twice the memory")->step_seconds,
            predict_seconds(inputs, plan).value());
}

// All rates in the section of that link, as a user would write them.
std::string doubled(const std::string& toml, const LinkKey& key) {
  std::string changed;
  for (size_t at = 0; at < toml.size();) {
    size_t end = toml.find("\n[", at + 1);
    end = end == std::string::npos ? toml.size() : end + 1;
    std::string section = toml.substr(at, end - at);
    at = end;
    const auto has = [&](const std::string& line) { return section.find(line) != std::string::npos; };
    const bool inside = has("inside = true");
    const bool named = has("nic = ");
    if (section.starts_with("[[link]]") && has("from = \"" + key.from + "\"") &&
        has("to = \"" + key.to + "\"") && inside == key.inside &&
        (key.nic.empty() ? !named : has("nic = \"" + key.nic + "\""))) {
      std::string more;
      const std::regex point(R"(\[ *([0-9.e+]+), *([0-9.e+]+) *\])");
      auto rest = section.cbegin();
      for (std::smatch match; std::regex_search(rest, section.cend(), match, point); rest = match[0].second) {
        more.append(rest, match[0].first);
        more += "[" + match[1].str() + ", " + fmt::format("{}", 2 * std::stod(match[2].str())) + "]";
      }
      EXPECT_FALSE(more.empty()) << section;
      section = more.append(rest, section.cend());
    }
    changed += section;
  }
  EXPECT_NE(changed, toml);
  return changed;
}

TEST(Sensitivity, DoublingALinkInTheFileGivesTheFigure) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const training::TemporaryFolder temporary;
  int played = 0;
  int faster = 0;
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    Cluster cluster = example_cluster();
    const Model model = example_model(6);
    Profile profile = example_profile();
    if (any(0, 1)) {
      cluster.nics = {{"roce", {"rdma"}, {"*"}}, {"eth", {"tcp"}, {"*"}}};
      for (Node& node : cluster.nodes)
        node.nics = any(0, 1) ? std::vector<std::string>{"roce", "eth"} : std::vector<std::string>{"eth"};
      profile.links[{"fast", "fast", false, "roce"}] = {1e-5, {{1, any(1, 9) * 1e8}}};
      if (any(0, 1)) profile.links[{"slow", "fast", false, "eth"}] = {1e-5, {{1, any(1, 9) * 1e7}}};
    }
    if (any(0, 1)) profile.links[{"slow", "fast", false}] = {0, {{1, any(1, 9) * 1e7}, {1e6, 1e9}}};
    for (auto& [key, link] : profile.links) {
      link.bandwidth.back().second = any(1, 20) * 5e6;
      if (any(0, 1)) link.allreduce = {{1e3, any(1, 20) * 1e6}, {1e7, any(1, 20) * 5e6}};
    }
    Plan plan;
    plan.runtime.overlap_gradients = any(0, 1);
    if (any(0, 1)) plan.runtime.reduction = ReductionKind::kHdt;
    const std::vector<std::string> names = {"a", "b", "c", "d"};
    for (int first = 0; first < 4;) {
      const int stages = any(1, std::min(3, 4 - first));
      plan.replicas.push_back({1, any(1, 4), {}});
      for (int stage = 0; stage < stages; ++stage)
        plan.replicas.back().stages.push_back({6 / stages, names[first++], 1});
    }
    const PredictionInputs inputs{cluster, model, profile, {}};
    const auto found = changes(inputs, plan);
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    const double step = predict_seconds(inputs, plan).value();
    size_t links = 0;
    for (const Change& change : found.value()) {
      if (change.kind != Change::Kind::kLinks) continue;
      std::string toml = to_toml(profile);
      for (const LinkKey& key : change.links) toml = doubled(toml, key);
      training::write_all(temporary.file("profile.toml"), toml);
      const auto read = read_profile(temporary.file("profile.toml"));
      ASSERT_TRUE(read.is_ok()) << read.status().message() << toml;
      const double seconds = predict_seconds({cluster, model, read.value(), {}}, plan).value();
      EXPECT_NEAR(seconds, change.step_seconds, 1e-9 * seconds) << change.what;
      ++played;
      if (seconds < .999 * step) ++faster;
      if (!change.what.starts_with("all ")) links += change.links.size();
    }
    EXPECT_EQ(links, profile.links.size());
  }
  EXPECT_GT(played, 200);
  EXPECT_GT(faster, 50);
}

}  // namespace
}  // namespace hdt::plan
