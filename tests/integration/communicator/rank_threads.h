// rank_threads.h: ranks as threads of the test's process, placed on real nodes by the socket in their
// configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "tests/integration/communicator/node_process.h"

namespace hdt::testing {

struct Rank {
  int rank;
  int ranks;
  hdtComm_t comm;
};

// The node of every rank, e.g. {0, 0, 1}.
using Placement = std::vector<int>;

std::string name_of(const Placement& placement);

// Three nodes. The first is the one where ids are made: one object at a time.
class Nodes {
 public:
  // That all tests of a program share.
  static Nodes& instance();
  static constexpr int kNodes = 3;
  // Every hdtcommd gets the flags, and keeps its state in the folder `states`/NODE, if there is one.
  // HDT_TEST_BACKEND: the one backend that they use.
  explicit Nodes(std::vector<std::string> flags = {}, const std::string& states = "");
  const std::string& socket(int node) const { return nodes_[static_cast<size_t>(node)]->socket(); }

  // Makes a group, runs `body` in every rank's thread, and leaves the group.
  void run(const Placement& placement, const std::function<void(Rank&)>& body) const;

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
};

// Fails the test with the library's words unless `call` succeeds.
#define HDT_EXPECT(call)                                                                                   \
  do {                                                                                                     \
    const hdtResult_t result_ = (call);                                                                    \
    EXPECT_EQ(result_, HDT_SUCCESS) << #call << ": " << (result_ == HDT_SUCCESS ? "" : hdtGetLastError()); \
  } while (false)

}  // namespace hdt::testing
