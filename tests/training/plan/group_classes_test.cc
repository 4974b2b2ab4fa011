// group_classes_test.cc: NIC kinds of nodes decide links, placement and the settings of classes.
#include "training/plan/describe/group_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "training/data/command.h"
#include "training/plan/describe/node_link.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/output/class_sections.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

// Holmes' clusters with one kind of device: "ib" and "roce" nodes, fast among themselves, slow Ethernet
// between them.
class NicKinds : public ::testing::Test {
 protected:
  NicKinds() {
    cluster_.nics = {{"infiniband", {"rdma", "tcp"}, {"mlx5_*"}},
                     {"roce", {"ofi", "rdma", "tcp"}, {"bnxt*"}},
                     {"ethernet", {"tcp"}, {"eth0", "eth1"}}};
    const int64_t memory = int64_t{16} << 30;
    for (const char* name : {"i1", "r1", "i2", "r2"})  // not in the order of their kinds
      cluster_.nodes.push_back(
          {name, "fast", 1, memory, {name[0] == 'i' ? "infiniband" : "roce", "ethernet"}});
    profile_.links[{"fast", "fast", false, "infiniband"}] = {0, {{1, 2e10}}};
    profile_.links[{"fast", "fast", false, "roce"}] = {0, {{1, 1e10}}};
    profile_.links[{"fast", "fast", false}] = {0, {{1, 1e8}}};
  }

  // Two pipelines over both kinds; stage by stage inside one kind.
  static Plan two_pipelines() {
    Plan plan;
    plan.replicas = {{1, 4, {{2, "i1", 1}, {2, "r1", 1}}}, {1, 4, {{2, "i2", 1}, {2, "r2", 1}}}};
    return plan;
  }
  Plan with_classes() const {
    Plan plan = two_pipelines();
    plan.classes = class_settings(plan, cluster_).value();
    return plan;
  }
  std::string refusal(const Plan& plan) const {
    const Status status = check_plan(plan, cluster_, model_, profile_);
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_EQ(check_nodes(plan, cluster_).message(), status.message());  // what export asks
    return status.message();
  }
  std::string file(const std::string& text) const {
    training::write_all(folder_.file("f.toml"), text);
    return folder_.file("f.toml");
  }

  const training::TemporaryFolder folder_;
  Cluster cluster_;
  Model model_ = example_model();
  Profile profile_ = example_profile();
};

TEST_F(NicKinds, TwoNodesTalkOverTheFirstThatBothHave) {
  const auto rate = [&](int from, int to) {
    return link_between(cluster_, profile_, cluster_.nodes[from], cluster_.nodes[to], false)->rate(1);
  };
  EXPECT_EQ(rate(0, 2), 2e10);
  EXPECT_EQ(rate(1, 3), 1e10);
  EXPECT_EQ(rate(0, 1), 1e8);
  EXPECT_EQ(rate(1, 0), 1e8);
  EXPECT_EQ(cluster_.nodes[1].kind(), "fast@roce+ethernet");
  EXPECT_THAT(cluster_.node_kinds(), testing::SizeIs(2));
  cluster_.nodes[0].nics = {"infiniband"};
  EXPECT_EQ(link_between(cluster_, profile_, cluster_.nodes[0], cluster_.nodes[1], false), nullptr);
  EXPECT_EQ(check_plan(two_pipelines(), cluster_, model_, profile_).message(),
            "node: 'i1' and 'r1' have no kind of NIC in common");
  profile_.links.erase({"fast", "fast", false});
  cluster_.nodes[0].nics = cluster_.nodes[2].nics;
  EXPECT_EQ(check_plan(two_pipelines(), cluster_, model_, profile_).message(),
            "link: the profile has none between 'fast' and 'fast' over ethernet");
}

TEST_F(NicKinds, SendsOverOneDoNotShareTheOther) {
  Network network(cluster_, profile_);
  network.start(TransferKind::kMessage, {{0, 2}}, 2e10, 1, 1);
  network.start(TransferKind::kMessage, {{0, 1}}, 1e8, 1, 1);
  EXPECT_DOUBLE_EQ(network.next_end(), 1);
  network.start(TransferKind::kMessage, {{0, 3}}, 1e8, 1, 1);  // over Ethernet, too
  EXPECT_EQ(network.advance(1).size(), 1u);
  EXPECT_DOUBLE_EQ(network.next_end(), 1);
}

// All devices are alike: only the NICs say that pipelines go over both kinds and gradients stay inside each.
TEST_F(NicKinds, SearchReducesInsideKindsAndSendsActivationsBetweenThem) {
  for (LayerKind& layer : model_.layers) {
    layer.output_bytes = 1 << 10;
    for (auto& [degree, bytes] : layer.parameter_bytes) bytes = int64_t{60} << 20;
  }
  // A replica has no room on one node.
  for (Node& node : cluster_.nodes) node.memory_bytes = int64_t{1} << 30;
  SearchOptions options;
  options.global_batch_size = 8;
  const auto found = search({cluster_, model_, profile_, {}}, options);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  const Plan& plan = found.value().plan;
  ASSERT_EQ(plan.replicas.size(), 2u) << plan_text(plan, cluster_);
  for (const Replica& replica : plan.replicas) {
    ASSERT_EQ(replica.stages.size(), 2u) << plan_text(plan, cluster_);
    EXPECT_EQ(replica.stages[0].node[0], plan.replicas[0].stages[0].node[0]);
    EXPECT_NE(replica.stages[1].node[0], plan.replicas[0].stages[0].node[0]);
  }
  EXPECT_THAT(plan.classes.at("dp").nics, ElementsAre("infiniband", "roce"));
  EXPECT_THAT(plan.classes.at("pp").nics, ElementsAre("ethernet"));
}

TEST_F(NicKinds, ClassesHaveWhatTheirGroupsUse) {
  const auto classes = class_settings(two_pipelines(), cluster_).value();
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes.at("dp").backends, (Names{"ofi", "rdma", "tcp"}));  // as both lists have it
  EXPECT_EQ(classes.at("dp").nics, (Names{"infiniband", "roce"}));
  EXPECT_EQ(classes.at("pp").backends, Names{"tcp"});
  EXPECT_EQ(classes.at("pp").nics, Names{"ethernet"});
  EXPECT_EQ(classes.at("pp").priority, "bulk");  // alone on its NICs
  Plan crossed = two_pipelines();
  std::swap(crossed.replicas[1].stages[0], crossed.replicas[1].stages[1]);
  const auto shared = class_settings(crossed, cluster_).value();
  EXPECT_EQ(shared.at("dp").nics, Names{"ethernet"});
  EXPECT_EQ(shared.at("pp").priority, "latency");
  EXPECT_EQ(shared.at("dp").priority, "bulk");
  Plan inside;
  inside.replicas = {{1, 4, {{2, "i1", 1}, {2, "i1", 2}}}};
  EXPECT_EQ(class_settings(inside, cluster_).value().at("pp").backends, Names{"shm"});
  EXPECT_EQ(class_settings(inside, cluster_).value().at("tp").backends, Names{"shm"});
  EXPECT_THAT(class_settings(example_plan(), example_cluster()).value(), testing::IsEmpty());
}

TEST_F(NicKinds, ClassesThatCannotCarryThePlanAreRefused) {
  EXPECT_TRUE(check_plan(with_classes(), cluster_, model_, profile_).is_ok());
  Plan plan = with_classes();
  plan.classes["dp"].nics.emplace_back("slingshot");
  EXPECT_EQ(refusal(plan),
            "class.dp.nics: 'slingshot' given, but no node of the cluster has that kind of NIC");
  plan = with_classes();
  plan.classes["pp"].backends.emplace_back("rdma");
  EXPECT_EQ(refusal(plan),
            "class.pp.backends: 'rdma' given, but no kind of NIC of the class (ethernet) has it");
  plan = with_classes();
  plan.classes["dp"].backends.emplace_back("tcp");
  EXPECT_EQ(refusal(plan), "class.dp.backends: 'tcp' given twice");
  plan = with_classes();
  plan.classes["dp"].nics = {"infiniband", "ethernet"};
  plan.classes["dp"].backends = {"rdma", "tcp"};
  EXPECT_EQ(refusal(plan),
            "class.dp.nics: 'roce' is missing, over which 'fast@roce+ethernet' and "
            "'fast@roce+ethernet' are taken to talk");
  plan = with_classes();
  plan.classes["dp"].backends = {"ofi"};
  EXPECT_EQ(refusal(plan),
            "class.dp.backends: none of 'infiniband' (rdma, tcp), over which "
            "'fast@infiniband+ethernet' and 'fast@infiniband+ethernet' talk");
  plan = with_classes();
  plan.classes["pp"].backends = {"shm"};
  EXPECT_THAT(refusal(plan), HasSubstr("class.pp.backends: 'shm' given, but "));
  plan = with_classes();
  plan.classes["ep"] = plan.classes["dp"];
  EXPECT_EQ(refusal(plan), "class.ep: the plan has no groups of this class, expected dp, pp");
  plan = with_classes();
  plan.classes.erase("pp");
  EXPECT_EQ(refusal(plan), "class.pp: is missing, as other classes are given");
  plan = with_classes();
  cluster_.nics.clear();
  for (Node& node : cluster_.nodes) node.nics.clear();
  EXPECT_EQ(refusal(plan), "class: given, but the cluster has no [[nic]] tables");
}

TEST_F(NicKinds, FilesReadBackTheSame) {
  const std::string cluster = to_toml(cluster_);
  EXPECT_EQ(to_toml(read_cluster(file(cluster)).value()), cluster);
  EXPECT_EQ(read_profile(file(to_toml(profile_))).value().links, profile_.links);
  Plan plan = with_classes();
  plan.classes["pp"] = {{"tcp"}, {"*"}, "ring", "latency", 7};
  EXPECT_EQ(read_plan(file(to_toml(plan))).value(), plan);
}

TEST_F(NicKinds, WrongFilesAreRefusedWithFieldAndReason) {
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  struct Wrong {
    std::string from, to, message;
  };
  for (const auto& [from, to, message] : std::vector<Wrong>{
           {R"("rdma", "tcp")", R"("rmda", "tcp")",
            "nic 1.backends: 'rmda' given, expected tcp, rdma, ofi, ucx"},
           {R"("rdma", "tcp")", R"("tcp", "rdma")",
            "nic.backends: two kinds of NICs have them in opposite orders; a class has one order for all"},
           {R"("rdma", "tcp")", R"("tcp", "tcp")", "nic 1.backends: 'tcp' given twice"},
           {R"(interfaces = ["mlx5_*"])", "", "nic 1.interfaces: is missing"},
           {R"(["mlx5_*"])", "[]", "nic 1.interfaces: expected a list of texts that are not empty"},
           {R"(["mlx5_*"])", "[1]", "nic 1.interfaces: expected a list of texts that are not empty"},
           {R"(name = "roce")", R"(name = "ethernet")", "nic 3.name: 'ethernet' given twice"},
           {"nics = [\"infiniband\", \"ethernet\"]\n", "",
            "node 'i1'.nics: is missing, as there are [[nic]] tables"},
           {R"(nics = ["infiniband", "ethernet"])", R"(nics = ["slingshot"])",
            "node 'i1'.nics: 'slingshot' given, but no [[nic]] has that name"},
           {R"(nics = ["infiniband", "ethernet"])", R"(nics = ["ethernet", "infiniband"])",
            "node 'i1'.nics: 'infiniband' given twice or too late, expected the order of the [[nic]] tables, "
            "best "
            "first"}}) {
    const auto read = read_cluster(file(changed(to_toml(cluster_), from, to)));
    EXPECT_THAT(read.status().message(),
                testing::AllOf(testing::StartsWith(folder_.file("f.toml: ")), EndsWith(message)))
        << to;
  }
  for (const auto& [from, to, message] : std::vector<Wrong>{
           {"weight = 1", "weight = 0", "class.dp.weight: expected an integer 1..1000, found 0"},
           {"weight = 1", "wait = 1", "class.dp.wait: unknown key"},
           {"weight = 1", "weight = true",
            "class.dp.weight: expected an integer 1..1000, found something else"},
           {R"(priority = "bulk")", R"(priority = "high")",
            R"(class.dp.priority: expected "bulk" or "latency", found "high")"},
           {"[class.dp]", "[class]\nx = 1\n[class.dp]", "class: expected tables [class.NAME]"}}) {
    const auto read = read_plan(file(changed(to_toml(with_classes()), from, to)));
    EXPECT_THAT(read.status().message(),
                testing::AllOf(testing::StartsWith(folder_.file("f.toml: ")), HasSubstr(message)))
        << to;
  }
  Profile profile = example_profile();
  profile.links[{"fast", "fast", true, "roce"}] = {0, {{1, 1}}};
  EXPECT_THAT(read_profile(file(to_toml(profile))).status().message(),
              HasSubstr(".nic: a link inside a node uses no NIC"));
}

TEST_F(NicKinds, SectionsAreWhatTheDaemonReads) {
  Plan plan = with_classes();
  plan.classes["pp"].nics = {"*"};
  const std::string text = class_sections(plan, cluster_);
  EXPECT_EQ(text,
            "# while jobs run: hdtctl class set dp backends=ofi,rdma,tcp 'nics=mlx5_*,bnxt*' algorithm=auto "
            "priority=bulk weight=1\n"
            "[class.dp]\nbackends = [\"ofi\", \"rdma\", \"tcp\"]\nnics = [\"mlx5_*\", \"bnxt*\"]\n"
            "algorithm = \"auto\"\npriority = \"bulk\"\nweight = 1\n"
            "\n"
            "# while jobs run: hdtctl class set pp backends=tcp 'nics=mlx5_*,bnxt*,eth0,eth1' algorithm=auto "
            "priority=bulk weight=1\n"
            "[class.pp]\nbackends = [\"tcp\"]\nnics = [\"mlx5_*\", \"bnxt*\", \"eth0\", \"eth1\"]\n"
            "algorithm = \"auto\"\npriority = \"bulk\"\nweight = 1\n");
  ConfigSources sources;
  sources.file = file(text);
  const Result<Config> config = load_config(sources);
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config.value().class_named("dp").nics, (Names{"mlx5_*", "bnxt*"}));
}

TEST(MergedPreferences, KeepsEachOrderOrSaysThatThereIsNone) {
  EXPECT_EQ(merged_preferences({{"b", "c"}, {"a", "b"}, {}}), (Names{"a", "b", "c"}));
  EXPECT_EQ(merged_preferences({{"a"}, {"b", "a"}, {"c"}}), (Names{"b", "a", "c"}));
  EXPECT_EQ(merged_preferences({{"a", "b"}, {"b", "c"}, {"c", "a"}}), std::nullopt);
}

}  // namespace
}  // namespace hdt::plan
