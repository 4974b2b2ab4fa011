#include "tests/integration/communicator/rank_threads.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <climits>
#include <cstdlib>
#include <latch>
#include <map>
#include <thread>

namespace hdt::testing {

namespace {
constexpr int64_t kTimeoutMs = 60'000;
}

std::string name_of(const Placement& placement) {
  std::string name = "nodes";
  for (int node : placement) name += "_" + std::to_string(node);
  return name;
}

Nodes& Nodes::instance() {
  static Nodes nodes;
  return nodes;
}

Nodes::Nodes(std::vector<std::string> flags, const std::string& states) {
  // The buffers of one call are those of the next. The C library would give the large ones back to the
  // kernel, and a quarter of the time of communicator_test would go into taking them again.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  // The same tests over another backend (tests/integration/backends): the only one, so nothing goes another
  // way unnoticed.
  if (const char* backend = std::getenv("HDT_TEST_BACKEND")) {
    flags.insert(flags.end(), {"--class.default.backends", backend});
  }
  for (int node = 0; node < kNodes; ++node) {
    std::map<std::string, std::string> environment;
    if (!states.empty()) environment["HDT_NODE_STATE_FOLDER"] = states + "/" + std::to_string(node);
    nodes_.push_back(std::make_unique<NodeProcess>(folder_, node, flags, environment));
  }
  ::setenv("HDT_SOCKET", socket(0).c_str(), 1);
}

void Nodes::run(const Placement& placement, const std::function<void(Rank&)>& body) const {
  hdtUniqueId_t id;
  ASSERT_EQ(hdtGetUniqueId(&id), HDT_SUCCESS) << hdtGetLastError();
  std::vector<std::thread> threads;
  const int ranks = static_cast<int>(placement.size());
  // A rank whose call has not returned gets the failure of a group that another body lets fail at once.
  std::latch made(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
      config.socket = socket(placement[static_cast<size_t>(rank)]).c_str();
      config.timeout_ms = kTimeoutMs;
      Rank self{rank, ranks, nullptr};
      HDT_EXPECT(hdtCommInitRank(&self.comm, ranks, id, rank, &config));
      made.arrive_and_wait();
      if (self.comm == nullptr) return;
      body(self);
      HDT_EXPECT(hdtCommDestroy(self.comm));
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace hdt::testing
