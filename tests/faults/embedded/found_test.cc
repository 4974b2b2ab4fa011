// found_test.cc: hdtctl finds the daemons that processes host, without a socket's path.
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "tests/faults/embedded/job.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

class FoundByHdtctl : public EmbeddedNodes {
 protected:
  ProgramRun status(const std::string& node) const {
    return run_program({HDT_HDTCTL, "status", "--json"},
                       {{"XDG_RUNTIME_DIR", folder_.path()}, {"HDT_NODE_NAME", node}});
  }
  std::string asked_node(const std::string& node) const {
    const ProgramRun asked = status(node);
    if (asked.status != 0) return asked.errors;
    return nlohmann::json::parse(asked.output)["node"];
  }
};

TEST_F(FoundByHdtctl, TheDaemonOfTheNode) {
  EXPECT_THAT(asked_node("e0"),
              HasSubstr("no process of this user hosts a daemon of node e0; name a daemon"));
  Rank first = host_on(0), second = host_on(1);
  EXPECT_EQ(asked_node("e0"), "e0");
  EXPECT_EQ(asked_node("e1"), "e1");
  EXPECT_THAT(asked_node("e"), HasSubstr("no process of this user hosts a daemon of node e;"));
}

TEST_F(FoundByHdtctl, TheOnlyOne) {
  if (std::filesystem::exists(Config().node.socket)) GTEST_SKIP() << "this host has a daemon of the system";
  EXPECT_THAT(asked_node(""),
              HasSubstr("no daemon runs here, neither at /run/hdt/hdtcommd.sock nor in a process"));
  Rank first = host_on(0);
  EXPECT_EQ(asked_node(""), "e0");
  Rank second = host_on(1);
  EXPECT_THAT(asked_node(""),
              HasSubstr("processes of this user host several daemons: " + folder_.file("hdt/e0.sock") + ", " +
                        folder_.file("hdt/e1.sock") + "; name a daemon with --socket"));
}

}  // namespace
}  // namespace hdt::testing
