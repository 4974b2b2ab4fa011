// doctor_test.cc: what is found in what daemons tell of themselves: each fault alone, beside a set-up that
// has none.
#include "tools/hdtctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace hdt::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Installation {
  json answer;
  std::vector<Reach> tried;
  Machine machine;
};

json description(const std::string& node, const std::string& address) {
  return {
      {"node", node},
      {"software", "hdtcommd 1"},
      {"control", address + ":18520"},
      {"nics", {{{"backend", "tcp"}, {"name", "eth0"}, {"address", address}, {"mtu", 9000U}, {"up", true}}}},
      {"rails", {{{"backend", "tcp"}, {"nic", "eth0"}, {"address", address + ":4711"}}}},
      {"wall_ns", int64_t{1'000'000'000'000}},
      {"cluster_key", true},
      {"allow_groups", {"hdt"}},
      {"memlock_bytes", UINT64_MAX},
      {"open_files", 65536U},
      {"open_files_used", 40U},
      {"memory_free", uint64_t{8} << 30},
      {"memory_error", ""},
      {"group_bytes", uint64_t{64} << 20},
      {"ports", {32768U, 60999U}},
      {"socket_shut", ""}};
}

json trial(const std::string& from, const std::string& to) {
  return {{"from_nic", "eth0"}, {"from", from},   {"to_nic", "eth0"}, {"to", to},
          {"error", ""},        {"narrowed", ""}, {"largest", 9000U}};
}

Installation sound() {
  Installation installation;
  installation.answer = {{"own", description("n0", "10.0.0.1")},
                         {"peers",
                          {{{"address", "10.0.0.2:18520"},
                            {"description", description("n1", "10.0.0.2")},
                            {"there", json::array({trial("10.0.0.1", "10.0.0.2:4711")})},
                            {"back", json::array({trial("10.0.0.2", "10.0.0.1:4711")})}}}}};
  installation.tried = tried_paths(installation.answer);
  installation.machine.open_files = 65536;
  return installation;
}

TEST(Doctor, ASoundSetUpHasNothingToDo) {
  const Installation installation = sound();
  ASSERT_EQ(installation.tried.size(), 2U);
  EXPECT_FALSE(installation.tried[0].back);
  EXPECT_TRUE(installation.tried[1].back);
  EXPECT_EQ(installation.tried[0].from_address, "10.0.0.1");
  EXPECT_EQ(installation.tried[0].to_address, "10.0.0.2:4711");
  const auto findings = examine(installation.answer, installation.tried, installation.machine);
  EXPECT_GE(findings.size(), 5U);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.level, Level::kGood) << finding.text;
    EXPECT_EQ(finding.advice, "");
  }
  EXPECT_EQ(doctor_exit(findings), 0);
  EXPECT_THAT(doctor_table(findings), HasSubstr("0 problem(s), 0 warning(s)"));
}

struct Fault {
  const char* name;
  std::function<void(Installation&)> make;
  Level level;
  const char* subject;
  const char* text;
  const char* advice;
};

const Fault kFaults[] = {
    {"NoDaemon",
     [](Installation& s) {
       s.answer = {{"error", "no daemon at /run/x"}};
     },
     Level::kProblem, "daemon", "/run/x", "start hdtcommd"},
    {"NicDown", [](Installation& s) { s.answer["own"]["nics"][0]["up"] = false; }, Level::kProblem, "reach",
     "eth0 (10.0.0.1) is down", "ip link set eth0 up"},
    {"NoAnswer",
     [](Installation& s) {
       s.answer["peers"][0] = {{"address", "10.0.0.2:18520"}, {"error", "connection refused"}};
     },
     Level::kProblem, "reach", "10.0.0.2:18520 does not answer: connection refused",
     "is hdtcommd running there"},
    {"OtherProtocol",
     [](Installation& s) {
       s.answer["peers"][0] = {{"address", "10.0.0.2:18520"}, {"error", "peer protocol version 3"}};
     },
     Level::kProblem, "reach", "version 3", "same release"},
    {"OtherKey",
     [](Installation& s) {
       s.answer["peers"][0] = {{"address", "10.0.0.2:18520"}, {"error", "wrong cluster key"}};
     },
     Level::kProblem, "reach", "wrong cluster key", "security.cluster_key_file"},
    {"PairUnreachable", [](Installation& s) { s.tried[0].error = "Connection timed out"; }, Level::kProblem,
     "reach", "reaches no NIC of node n1", "nics.exclude"},
    {"NoWayBack", [](Installation& s) { s.tried[1].error = "Connection timed out"; }, Level::kProblem,
     "reach", "NIC eth0 (10.0.0.2) of node n1 reaches no NIC of this node", "nics.exclude"},
    {"WayBackNotTried",
     [](Installation& s) {
       s.tried.pop_back();
       s.answer["peers"][0]["back_error"] = "it does not know the question";
     },
     Level::kNotTried, "reach", "the way from node n1 to this one: it does not know", ""},
    {"NoPeerNamed", [](Installation& s) { s.answer["peers"] = json::array(); }, Level::kNotTried, "reach",
     "the way to other nodes", ""},
    {"OtherBackend", [](Installation& s) { s.answer["own"]["nics"][0]["backend"] = "ofi"; }, Level::kNotTried,
     "reach", "connections of backend ofi", ""},
    {"OtherSubnet",
     [](Installation& s) {
       s.tried.push_back(s.tried[0]);
       s.tried[2].to_nic = "eth1";
       s.tried[2].error = "No route to host";
     },
     Level::kWarning, "reach", "does not reach data port eth1", "ip rule add"},
    {"NothingInCommon", [](Installation& s) { s.tried.clear(); }, Level::kProblem, "reach", "share a backend",
     "backends"},
    {"MtuDiffers", [](Installation& s) { s.answer["peers"][0]["description"]["nics"][0]["mtu"] = 1500U; },
     Level::kWarning, "mtu", "9000, eth0 of node n1 has 1500", "ip link set eth0 mtu 9000"},
    {"PathMtuIsLess", [](Installation& s) { s.tried[0].largest = 1500; }, Level::kWarning, "mtu",
     "1500 bytes", "switches"},
    {"LargePacketsVanish", [](Installation& s) { s.tried[0].narrowed = "those of 2000 bytes do not come"; },
     Level::kWarning, "mtu", "2000 bytes do not come", "jobs run with small packets"},
    {"LargePacketsVanishOnTheWayBack",
     [](Installation& s) { s.tried[1].narrowed = "those of 2000 bytes do not come"; }, Level::kWarning, "mtu",
     "node n1 finds: those of 2000", "switches"},
    {"NothingLargeTried",
     [](Installation& s) {
       for (Reach& pair : s.tried) pair.largest = 0;
     },
     Level::kNotTried, "mtu", "reached without a network", ""},
    {"FewFilesLeft", [](Installation& s) { s.answer["own"]["open_files_used"] = 65400U; }, Level::kWarning,
     "limits", "65400 of 65536 files open", "LimitNOFILE"},
    {"NoFilesLeft", [](Installation& s) { s.answer["own"]["open_files_used"] = 65530U; }, Level::kProblem,
     "limits", "6 are left", "end jobs"},
    {"FewFilesOfAJob", [](Installation& s) { s.machine.open_files = 64; }, Level::kWarning, "limits",
     "may open 64 files", "ulimit -n"},
    {"LittleMemory", [](Installation& s) { s.answer["own"]["memory_free"] = 1024U; }, Level::kProblem,
     "memory", "a small group takes 64 MiB", "MemoryMax"},
    {"NoMemory", [](Installation& s) { s.answer["own"]["memory_error"] = "Cannot allocate memory"; },
     Level::kProblem, "memory", "Cannot allocate", "control group"},
    {"FewPorts",
     [](Installation& s) {
       s.answer["own"]["ports"] = {50000U, 50099U};
     },
     Level::kWarning, "ports", "100 for all", "ip_local_port_range"},
    {"SocketShut", [](Installation& s) { s.answer["own"]["socket_shut"] = "folder /run/hdt has mode 0700"; },
     Level::kWarning, "permissions", "/run/hdt has mode 0700", "umask 022"},
    {"FewFiles", [](Installation& s) { s.answer["own"]["open_files"] = 256U; }, Level::kWarning, "limits",
     "256 files", "LimitNOFILE"},
    {"LittleLocked",
     [](Installation& s) {
       s.answer["own"]["nics"][0]["backend"] = "rdma";
       s.answer["own"]["memlock_bytes"] = 65536U;
     },
     Level::kProblem, "limits", "65536 bytes", "LimitMEMLOCK=infinity"},
    {"ClockAhead",
     [](Installation& s) { s.answer["peers"][0]["description"]["wall_ns"] = int64_t{1'007'500'000'000}; },
     Level::kWarning, "clock", "7.5 s ahead", "chrony"},
    {"OtherRelease", [](Installation& s) { s.answer["peers"][0]["description"]["software"] = "hdtcommd 2"; },
     Level::kWarning, "versions", "hdtcommd 2", "same release"},
    {"NoKey", [](Installation& s) { s.answer["own"]["cluster_key"] = false; }, Level::kWarning, "permissions",
     "no cluster key", "security.cluster_key_file"},
    {"NoPtrace", [](Installation& s) { s.machine.ptrace_scope = "2"; }, Level::kWarning, "permissions",
     "ptrace_scope is 2", "hdtMemAlloc"},
};

class DoctorFinds : public ::testing::TestWithParam<Fault> {};

TEST_P(DoctorFinds, AndSaysWhatToDo) {
  const Fault& fault = GetParam();
  Installation installation = sound();
  fault.make(installation);
  const auto findings = examine(installation.answer, installation.tried, installation.machine);
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) {
    return f.level == fault.level && f.subject == fault.subject &&
           f.text.find(fault.text) != std::string::npos;
  });
  ASSERT_NE(found, findings.end()) << doctor_table(findings);
  EXPECT_THAT(found->advice, HasSubstr(fault.advice));
  EXPECT_EQ(doctor_exit(findings), fault.level == Level::kProblem ? 1 : 0);
  const auto list = doctor_json(findings)["findings"];
  EXPECT_EQ(list.size(), findings.size());
}

INSTANTIATE_TEST_SUITE_P(Each, DoctorFinds, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST(Doctor, WhatAnotherDaemonTellsMayBeNonsense) {
  for (const json& nonsense :
       {json(), json(7), json::array(), json{{"node", 7}, {"nics", "x"}, {"rails", {{1}}}}}) {
    Installation installation = sound();
    installation.answer["peers"][0]["description"] = nonsense;
    installation.answer["peers"][0]["there"] = nonsense;  // nothing could be tried
    const auto pairs = tried_paths(installation.answer);
    EXPECT_EQ(doctor_exit(examine(installation.answer, pairs, {})), 1);
  }
}

}  // namespace
}  // namespace hdt::ctl
