// choice_test.cc: which backend two nodes take: the first one of the class that both may use and that
// connects them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/integration/backends/backend_nodes.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::vector<std::string> dp(const std::string& backends) { return {"--class.dp.backends", backends}; }

// The reports of the group's nodes about the link between node 0 and 1, once a sum over it was right.
std::vector<nlohmann::json> choices(const BackendNodes& nodes) {
  nodes.run("dp", [&](int rank, hdtComm_t comm, hdtResult_t made) {
    ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
    BackendNodes::sum(comm, rank, 2, 100'000, 4);
  });
  return {nodes.ask(0, {"explain", "link", "n1"})["classes"][0],
          nodes.ask(1, {"explain", "link", "n0"})["classes"][0]};
}

std::string result_of(const nlohmann::json& choice, const std::string& backend) {
  for (const auto& candidate : choice["candidates"]) {
    if (candidate["backend"] == backend) return candidate["result"];
  }
  return "no candidate";
}

TEST(Choice, IsTheFirstThatBothMayUse) {
  const BackendNodes nodes({dp("near,local,tcp"), dp("tcp,local")});
  for (const auto& choice : choices(nodes)) {
    EXPECT_EQ(choice["chosen"], "local") << choice;
    EXPECT_EQ(result_of(choice, "local"), "connected");
    EXPECT_EQ(result_of(choice, "near"), "no candidate");
    EXPECT_THAT(result_of(choice, "tcp"), AnyOf("not tried", HasSubstr("tries it")));
  }
}

TEST(Choice, GoesOnToTheNextWhereNicsDoNotReachEachOther) {
  const BackendNodes nodes({dp("deaf,near"), dp("deaf,near")});
  const auto both = choices(nodes);
  for (const auto& choice : both) EXPECT_EQ(choice["chosen"], "near") << choice;
  const auto& dialer = both[0]["dials"].get<bool>() ? both[0] : both[1];
  EXPECT_THAT(result_of(dialer, "deaf"), HasSubstr("nobody listens there")) << dialer;
  EXPECT_THAT(nodes.ctl(0, {"explain", "link", "n1"}).output,
              AllOf(HasSubstr("class dp, engine 0: over near"), HasSubstr(" * near       connected"),
                    HasSubstr("deaf0 (127.0.1.1:1)")));
  EXPECT_THAT(nodes.ctl(0, {"explain", "link", "n7"}).errors, HasSubstr("has had no group with a node 'n7'"));
}

// Every rank is told; the code and the words.
void expect_refused(const BackendNodes& nodes, const std::vector<std::string>& words,
                    hdtResult_t code = HDT_ERR_NO_BACKEND) {
  nodes.run("dp", [&](int /*rank*/, hdtComm_t comm, hdtResult_t made) {
    EXPECT_EQ(comm, nullptr);
    EXPECT_EQ(made, code) << hdtGetLastError();
    for (const std::string& word : words) EXPECT_THAT(hdtGetLastError(), HasSubstr(word));
  });
}

TEST(Choice, NoBackendInCommonIsAnErrorThatNamesBothNodes) {
  expect_refused(
      BackendNodes({dp("near,tcp"), dp("local")}),
      {"class dp: no backend fits both", "node n0 (near on lo0, tcp on lo)", "node n1 (local on lo0)"});
}

TEST(Choice, NoneThatConnectsIsAnErrorThatSaysWhy) {
  expect_refused(BackendNodes({dp("deaf,mute,near"), dp("mute,deaf")}),
                 {"class dp: no backend connects node n", "deaf: ", "mute: ", "nobody listens there"});
  expect_refused(BackendNodes({dp("mute"), dp("mute")}),
                 {"node n0", "node n1", "mute: ", "nobody listens there"}, HDT_ERR_LINK);
}

}  // namespace
}  // namespace hdt::testing
