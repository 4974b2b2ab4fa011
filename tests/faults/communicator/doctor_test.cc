// doctor_test.cc: hdtctl doctor at real daemons: a set-up that is sound, another node that is not there, and
// no daemon at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ProgramRun doctor(const std::string& socket, std::vector<std::string> words) {
  words.insert(words.begin(), {HDT_HDTCTL, "--socket", socket, "doctor"});
  return run_program(words);
}

TEST(Doctor, TriesTheNicsOfAnotherNode) {
  World world(2);
  const ProgramRun status = run_program({HDT_HDTCTL, "--socket", world.node(1).socket(), "status", "--json"});
  const std::string address = nlohmann::json::parse(status.output)["address"];
  const ProgramRun run = doctor(world.node(0).socket(), {address});
  EXPECT_EQ(run.status, 0) << run.output << run.errors;
  EXPECT_THAT(run.output, AllOf(HasSubstr("reaches 1 of 1 NIC(s) of node n1"),
                                HasSubstr("reaches 1 of 1 NIC(s) of this node"), HasSubstr("not tried mtu"),
                                HasSubstr("the clock of node n1 is right"), HasSubstr("0 problem(s)")));
}

TEST(Doctor, SaysWhatToDoAboutWhatIsNotThere) {
  World world(1);
  const ProgramRun peer = doctor(world.node(0).socket(), {"127.0.1.9:9", "--json"});
  EXPECT_EQ(peer.status, 1);
  const auto findings = nlohmann::json::parse(peer.output, nullptr, false)["findings"];
  const auto& last = findings.back();
  EXPECT_EQ(last["level"], "problem");
  EXPECT_THAT(last["text"].get<std::string>(), HasSubstr("the daemon at 127.0.1.9:9 does not answer"));
  EXPECT_THAT(last["advice"].get<std::string>(), HasSubstr("is hdtcommd running there"));
  const ProgramRun none = doctor("/nowhere/hdtcommd.sock", {});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, AllOf(HasSubstr("/nowhere/hdtcommd.sock"), HasSubstr("do: start hdtcommd")));
}

}  // namespace
}  // namespace hdt::testing
