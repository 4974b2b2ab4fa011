// real_backends_test.cc: one job with a group over each of the modules of this build that this machine can
// run, and over tcp, at once. The sanitizers do not know the modules' libraries, so it is not built with
// them.
#include <gmock/gmock.h>

#include "tests/integration/backends/backend_nodes.h"
#include "tests/integration/backends/built_modules.h"

namespace hdt::testing {
namespace {

TEST(RealBackends, CarryTheirGroupsAtOnce) {
  std::vector<std::string> backends = built_modules();
  if (backends.empty()) GTEST_SKIP() << "no module is built that can be used here (libfabric, UCX)";
  backends.emplace_back("tcp");
  std::vector<std::string> flags;
  for (const std::string& backend : backends) {
    flags.insert(flags.end(), {"--class.over-" + backend + ".backends", backend});
  }
  const BackendNodes nodes({flags, flags}, HDT_MODULES);
  std::vector<std::thread> groups;
  for (const std::string& backend : backends) {
    groups.emplace_back([&nodes, backend] {
      nodes.run("over-" + backend, [&](int rank, hdtComm_t comm, hdtResult_t made) {
        ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
        for (const size_t count : {1, 5'000, 500'000}) BackendNodes::sum(comm, rank, 2, count, 4);
      });
    });
  }
  for (auto& group : groups) group.join();
  std::map<std::string, uint64_t> sent;
  const auto status = nodes.ask(0, {"status"});
  for (const auto& peer : status["peers"]) {
    for (const auto& rail : peer["rails"]) sent[rail["backend"]] += rail["bytes_out"].get<uint64_t>();
  }
  for (const std::string& backend : backends) EXPECT_GT(sent[backend], 8'000'000U) << backend;
}

}  // namespace
}  // namespace hdt::testing
