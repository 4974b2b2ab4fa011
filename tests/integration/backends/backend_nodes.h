// backend_nodes.h: nodes that have, besides tcp, the example backend under the names local, near and third,
// and "deaf", whose NICs reach nobody. Each test says by flags what the nodes are to use.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "hdt/hdt.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {

class BackendNodes {
 public:
  // Flags by node. Node 0, 1, ... is n0, n1, ...; where they are: NodeProcess.
  explicit BackendNodes(const std::vector<std::vector<std::string>>& flags,
                        const std::string& modules = HDT_TEST_MODULES "/good:" HDT_TEST_MODULES "/deaf") {
    const std::map<std::string, std::string> environment = {{"HDT_TRANSPORT_PATH", modules}};
    for (const auto& of_node : flags) {
      nodes_.push_back(
          std::make_unique<NodeProcess>(folder_, static_cast<int>(nodes_.size()), of_node, environment));
    }
    ::setenv("HDT_SOCKET", nodes_[0]->socket().c_str(), 1);
  }

  ProgramRun ctl(int node, std::vector<std::string> words) const {
    words.insert(words.begin(), {HDT_HDTCTL, "--socket", nodes_[static_cast<size_t>(node)]->socket()});
    return run_program(words);
  }
  nlohmann::json ask(int node, std::vector<std::string> words) const {
    words.emplace_back("--json");
    const ProgramRun done = ctl(node, words);
    EXPECT_EQ(done.status, 0) << done.errors;
    return nlohmann::json::parse(done.output, nullptr, false);
  }

  // One rank on each node in a group of that class; `body` runs in each one's thread, with what making the
  // group gave.
  void run(const std::string& group_class,
           const std::function<void(int rank, hdtComm_t comm, hdtResult_t made)>& body) const {
    hdtUniqueId_t id;
    ASSERT_EQ(hdtGetUniqueId(&id), HDT_SUCCESS) << hdtGetLastError();
    std::vector<std::thread> threads;
    const int ranks = static_cast<int>(nodes_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
        config.socket = nodes_[static_cast<size_t>(rank)]->socket().c_str();
        config.timeout_ms = 30'000;
        config.group_class = group_class.c_str();
        hdtComm_t comm = nullptr;
        const hdtResult_t made = hdtCommInitRank(&comm, ranks, id, rank, &config);
        body(rank, comm, made);
        if (comm != nullptr) HDT_EXPECT(hdtCommDestroy(comm));
      });
    }
    for (auto& thread : threads) thread.join();
  }

  // Sums of `count` numbers, several times; memory that daemons use in place and ordinary memory in turn.
  static void sum(hdtComm_t comm, int rank, int ranks, size_t count, int times) {
    void* shared = nullptr;
    HDT_EXPECT(hdtMemAlloc(&shared, count * sizeof(float)));
    std::vector<float> ordinary(count);
    for (int time = 0; time < times; ++time) {
      float* data = time % 2 == 0 ? static_cast<float*>(shared) : ordinary.data();
      for (size_t i = 0; i < count; ++i)
        data[i] = static_cast<float>((i + static_cast<size_t>(time)) % 251 + static_cast<size_t>(rank));
      HDT_EXPECT(hdtAllReduce(data, data, count, HDT_FLOAT32, HDT_SUM, comm, nullptr));
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto expected =
            static_cast<float>(static_cast<size_t>(ranks) * ((i + static_cast<size_t>(time)) % 251)) +
            static_cast<float>(ranks * (ranks - 1)) / 2;
        wrong += data[i] != expected ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0U) << "call " << time;
    }
    HDT_EXPECT(hdtMemFree(shared));
  }

  void signal(int node, int number) const { nodes_[static_cast<size_t>(node)]->process().signal(number); }
  const NodeProcess& node(int number) const { return *nodes_[static_cast<size_t>(number)]; }

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
};

}  // namespace hdt::testing
