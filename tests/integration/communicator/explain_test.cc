// explain_test.cc: hdtctl explain against real daemons: what it says is what they are configured to, and
// wrong questions are refused with words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/communicator/example_run.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Runs `body` while a group with this placement is there; it is asked about at node 0.
void with_group(const Nodes& nodes, const Placement& placement, const std::function<void()>& body) {
  nodes.run(placement, [&](Rank& self) {
    if (self.rank == 0) body();
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

ProgramRun explain(const Nodes& nodes, std::vector<std::string> words, int at = 0) {
  words.insert(words.begin(), {HDT_HDTCTL, "--socket", nodes.socket(at), "explain"});
  return run_program(words);
}

nlohmann::json explained(const Nodes& nodes, std::vector<std::string> words, int at = 0) {
  words.insert(words.end(), {"--group", "default", "--json"});
  const ProgramRun done = explain(nodes, words, at);
  EXPECT_EQ(done.status, 0) << done.errors;
  return nlohmann::json::parse(done.output, nullptr, false);
}

TEST(Explain, NamesWhatIsPickedAndWhyTheOthersAreNot) {
  const Nodes nodes;
  with_group(nodes, {0, 1, 2}, [&] {
    const auto small = explained(nodes, {"allreduce", "32K"});
    ASSERT_TRUE(small.is_object());
    EXPECT_EQ(small["call"], "allreduce of 8192 float32, sum");
    EXPECT_EQ(small["class"], "default");
    EXPECT_EQ(small["ranks"], 3);
    EXPECT_EQ(small["nodes"], 3);
    EXPECT_EQ(small["chunks"], 1);
    EXPECT_EQ(small["chunk_bytes"], 32768);
    EXPECT_EQ(small["configured"], "auto");
    EXPECT_EQ(small["candidates"].size(), 7U);
    const auto large = explained(nodes, {"allreduce", "64M", "--type", "bfloat16"});
    EXPECT_EQ(large["call"], "allreduce of 33554432 bfloat16, sum");
    // Where the links were not measured alike, pairwise gets parts that are as unequal.
    EXPECT_THAT(large["picked"].get<std::string>(), AnyOf("ring", "pairwise"));
    EXPECT_EQ(large.contains("owned"), large["picked"] == "pairwise");
    for (const auto& candidate : large["candidates"]) {
      const bool in_place = candidate["algorithm"] == "ring" || candidate["algorithm"] == "pairwise";
      EXPECT_TRUE(in_place || candidate.contains("left_out")) << candidate;
      EXPECT_FALSE(candidate["algorithm"] == large["picked"] && candidate.contains("left_out")) << candidate;
    }
    const std::string id = large["group"];
    const ProgramRun table = explain(nodes, {"broadcast", "64M", "--root", "2", "--group", id});
    EXPECT_EQ(table.status, 0) << table.errors;
    EXPECT_THAT(table.output, AllOf(HasSubstr("root 2 in group " + id), HasSubstr("picked: ring\n"),
                                    HasSubstr("left out: "), HasSubstr(" * ring")));
  });
}

// All nodes predict the same of traffic between them; the way of ranks to their daemon is each node's own.
void expect_same_predictions(nlohmann::json one, nlohmann::json other) {
  for (nlohmann::json* each : {&one, &other}) {
    const double hand_over_s = each->at("hand_over_s").get<double>();
    EXPECT_GT(hand_over_s, 0);
    each->erase("hand_over_s");
    const auto take_off = [&](nlohmann::json& time) {
      const double between_s = time.get<double>() - hand_over_s;
      EXPECT_GT(between_s, 0);
      time = std::llround(between_s * 1e12);
    };
    if (each->contains("equal_parts_s")) take_off(each->at("equal_parts_s"));
    for (auto& candidate : each->at("candidates")) {
      if (candidate.contains("predicted_s")) take_off(candidate["predicted_s"]);
    }
  }
  EXPECT_EQ(one, other);
}

TEST(Explain, EveryNodePredictsTheSameFromTheSameFigures) {
  const Nodes nodes;
  with_group(nodes, {0, 1, 2}, [&] {
    for (const char* size : {"8", "1K", "32K", "1M"}) {
      const auto first = explained(nodes, {"allreduce", size});
      ASSERT_TRUE(first.is_object());
      EXPECT_TRUE(first.contains("predicted_for"));
      const auto& fastest = first["candidates"][0];
      EXPECT_EQ(fastest["algorithm"], first["picked"]);
      EXPECT_GT(fastest["predicted_s"].get<double>(), 0);
      for (const int node : {1, 2}) {
        SCOPED_TRACE(node);
        expect_same_predictions(first, explained(nodes, {"allreduce", size}, node));
      }
    }
  });
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Figures, AreKeptAndUsedAgainByTheNextDaemon) {
  TemporaryFolder state;
  const std::string file = state.file("measurements.json");
  std::ofstream(file) << "not what a daemon writes";
  std::string kept;
  for (int run = 0; run < 2; ++run) {
    // One folder for all nodes would be written by all: only node 0 keeps what it measures.
    TemporaryFolder sockets;
    const NodeProcess first(sockets, 0, {"--node.state_folder", state.path()});
    const NodeProcess second(sockets, 1);
    ::setenv("HDT_SOCKET", first.socket().c_str(), 1);
    hdtUniqueId_t id;
    ASSERT_EQ(hdtGetUniqueId(&id), HDT_SUCCESS) << hdtGetLastError();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
        config.socket = rank == 0 ? first.socket().c_str() : second.socket().c_str();
        hdtComm_t comm = nullptr;
        HDT_EXPECT(hdtCommInitRank(&comm, 2, id, rank, &config));
        HDT_EXPECT(hdtCommDestroy(comm));
      });
    }
    for (auto& rank : ranks) rank.join();
    const auto figures = nlohmann::json::parse(contents(file), nullptr, false);
    ASSERT_TRUE(figures.is_object()) << contents(file);
    ASSERT_EQ(figures["links"].size(), 1U);
    EXPECT_EQ(figures["links"][0]["node"], "n1");
    EXPECT_GT(figures["links"][0]["duplex_bytes_s"].get<uint64_t>(), 0U);
    EXPECT_GT(figures["memory"]["copy_bytes_s"].get<uint64_t>(), 0U);
    EXPECT_TRUE(run == 0 || contents(file) == kept) << "nothing is measured twice";
    kept = contents(file);
  }
}

// What each daemon would have measured: links that are alike, and memory of node 1 that combines and copies
// 20 MB/s.
void write_slow_memory(const TemporaryFolder& states) {
  for (int node = 0; node < Nodes::kNodes; ++node) {
    const uint64_t memory = node == 1 ? 20'000'000 : 8'000'000'000;
    nlohmann::json all = {{"format", 2},
                          {"memory", {{"copy_bytes_s", memory}, {"reduce_bytes_s", memory}}},
                          {"links", nlohmann::json::array()}};
    for (int peer = 0; peer < Nodes::kNodes; ++peer) {
      if (peer == node) continue;
      all["links"].push_back({{"node", "n" + std::to_string(peer)},
                              {"engine", 0},
                              {"latency_ns", 20'000},
                              {"bytes_s", 1'000'000'000},
                              {"duplex_bytes_s", 1'000'000'000}});
    }
    const std::string folder = states.file(std::to_string(node));
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/measurements.json") << all;
  }
}

// Node 1 owns w, with T = w 2 / 0.02 = 1 + (1 - w) / 2 in ns a byte: w = 1.5 / 100.5.
TEST(SlowMemory, OwnsLittleAndEveryValueIsRight) {
  const TemporaryFolder states;
  write_slow_memory(states);
  const Nodes nodes({}, states.path());
  with_group(nodes, {0, 1, 2}, [&] {
    const auto large = explained(nodes, {"allreduce", "64M"});
    ASSERT_EQ(large["picked"], "pairwise") << large;
    EXPECT_EQ(large["equal_parts_wait_for"], nlohmann::json({{"node", "n1"}, {"of_it", "memory"}}));
    const auto& owned = large["owned"];
    ASSERT_EQ(owned.size(), 3U);
    EXPECT_EQ(owned[1]["node"], "n1");
    EXPECT_EQ(owned[1]["combine_bytes_s"], 20'000'000);
    EXPECT_EQ(owned[1]["link_bytes_s"], 1'000'000'000);
    EXPECT_NEAR(owned[1]["part"].get<double>(), 1.5 / 100.5, 1e-3);
    EXPECT_NEAR(owned[0]["part"].get<double>(), owned[2]["part"].get<double>(), 1e-3);
    EXPECT_GT(large["equal_parts_s"].get<double>(), 10 * large["candidates"][0]["predicted_s"].get<double>());
    const ProgramRun table = explain(nodes, {"allreduce", "64M", "--group", "default"});
    EXPECT_THAT(table.output,
                AllOf(HasSubstr("combines 19.1 MiB/s"), HasSubstr(", as all wait for the memory of n1")));
  });
  // Again with two ranks on a node, which combine among themselves.
  for (const Placement& placement : {Placement{0, 1, 2}, Placement{0, 0, 1, 2}}) {
    nodes.run(placement, [&](Rank& self) {
      for (unsigned salt = 0; salt < 8; ++salt) {
        const Example example{Operation::kAllReduce,
                              salt < 4 ? HDT_INT32 : HDT_BFLOAT16,
                              HDT_SUM,
                              salt % 2 == 0,
                              1'000'003,
                              0,
                              salt,
                              salt % 4 < 2};
        ExampleRun run(example, self);
        run.start(nullptr);
        run.verify();
        HDT_EXPECT(hdtBarrier(self.comm, nullptr));
      }
    });
  }
}

TEST(Explain, TheConfiguredAlgorithmIsTheOneThatIsTaken) {
  const Nodes nodes({"--class.default.algorithm", "bruck"});
  with_group(nodes, {0, 1, 2}, [&] {
    const auto possible = explained(nodes, {"reduce_scatter", "1K"});
    EXPECT_EQ(possible["configured"], "bruck");
    EXPECT_EQ(possible["picked"], "bruck");
    const auto impossible = explained(nodes, {"allreduce", "1M"});
    EXPECT_THAT(impossible["picked"].get<std::string>(), AnyOf("ring", "pairwise"));
    EXPECT_THAT(impossible["why"].get<std::string>(),
                HasSubstr("class default has algorithm \"bruck\", but"));
  });
}

TEST(Explain, AGroupOfOneNodeNeedsNoAlgorithm) {
  const Nodes nodes;
  with_group(nodes, {0, 0}, [&] {
    EXPECT_TRUE(explained(nodes, {"allreduce", "1M"})["picked"].is_null());
    const ProgramRun table = explain(nodes, {"barrier", "0", "--group", "default"});
    EXPECT_THAT(table.output, AllOf(HasSubstr("picked: none"), HasSubstr("all ranks are on one node")));
  });
}

TEST(Explain, WrongQuestionsAreRefusedWithWords) {
  const Nodes nodes;
  with_group(nodes, {0, 1}, [&] {
    const auto refused = [&](int status, const std::vector<std::string>& words, const std::string& text) {
      const ProgramRun done = explain(nodes, words);
      EXPECT_EQ(done.status, status) << done.output;
      EXPECT_THAT(done.errors, HasSubstr(text));
    };
    refused(2, {"allreduce", "1M"}, "--group");
    refused(2, {"allreduce", "--group", "default"}, "SIZE");
    refused(2, {"allreduce", "much", "--group", "default"}, "SIZE");
    refused(2, {"alltogether", "1M", "--group", "default"}, "'alltogether' given; expected one of allreduce");
    refused(2, {"allreduce", "1M", "--group", "default", "--type", "float31"}, "'float31' given");
    refused(2, {"broadcast", "1M", "--group", "default", "--root", "2"}, "root out of range");
    refused(1, {"allreduce", "1M", "--group", "absent"}, "has no group 'absent'");
  });
}

}  // namespace
}  // namespace hdt::testing
