// unread_messages_test.cc: ranks that leave without having received what was sent to them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

constexpr int64_t kEndMs = 20'000;

size_t groups_on(const Nodes& nodes, int node) {
  const ProgramRun run = run_program({HDT_HDTCTL, "--socket", nodes.socket(node), "status", "--json"});
  EXPECT_EQ(run.status, 0) << run.errors;
  const auto status = nlohmann::json::parse(run.output, nullptr, false);
  return status.is_object() ? status["groups"].size() : SIZE_MAX;
}

// More messages wait than the rings of the receivers hold, on both nodes: neither can be emptied any more.
TEST(UnreadMessages, OfBothSidesKeepNoGroup) {
  const Nodes nodes;
  nodes.run({0, 1}, [](Rank& self) {
    constexpr int kMessages = 24;  // 16 in the ring of the sender, and 16 in the receiver's
    std::vector<hdtRequest_t> requests(kMessages);
    const int32_t message = 0;
    for (auto& request : requests) {
      HDT_EXPECT(hdtSend(&message, 1, HDT_INT32, 1 - self.rank, self.comm, &request));
    }
    // A sender hears of what has arrived by what else travels: calls, until all messages are in the rings.
    int32_t all_are_in = 0;
    for (size_t in = 0; all_are_in == 0;) {
      while (in < requests.size() && hdtTest(&requests[in]) == HDT_SUCCESS) ++in;
      all_are_in = in == requests.size() ? 1 : 0;
      HDT_EXPECT(hdtAllReduce(&all_are_in, &all_are_in, 1, HDT_INT32, HDT_MIN, self.comm, nullptr));
      if (::testing::Test::HasFailure()) return;
    }
  });
  for (int node = 0; node < 2; ++node) {
    const Deadline end = Deadline::after_ms(kEndMs);
    while (groups_on(nodes, node) != 0 && !end.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(groups_on(nodes, node), 0U) << "on node " << node;
  }
}

}  // namespace
}  // namespace hdt::testing
