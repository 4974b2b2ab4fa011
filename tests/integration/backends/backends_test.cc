// backends_test.cc: groups over backends of their class, several at once; and what is told of backends.
#include <gmock/gmock.h>

#include "tests/integration/backends/backend_nodes.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Payload that node `node` has sent over rails of each backend.
std::map<std::string, uint64_t> bytes_out(const BackendNodes& nodes, int node) {
  std::map<std::string, uint64_t> bytes;
  const auto status = nodes.ask(node, {"status"});
  for (const auto& peer : status["peers"]) {
    for (const auto& rail : peer["rails"]) bytes[rail["backend"]] += rail["bytes_out"].get<uint64_t>();
  }
  return bytes;
}

TEST(Backends, ThreeGroupsUseThreeBackendsAtOnce) {
  const std::vector<std::string> flags = {"--class.dp.backends", "local,tcp", "--class.pp.backends", "tcp",
                                          "--class.ep.backends", "near"};
  const BackendNodes nodes({flags, flags, flags});
  std::vector<std::thread> groups;
  for (const char* group_class : {"dp", "pp", "ep"}) {
    groups.emplace_back([&, group_class] {
      nodes.run(group_class, [&](int rank, hdtComm_t comm, hdtResult_t made) {
        ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
        BackendNodes::sum(comm, rank, 3, 300'000, 6);
      });
    });
  }
  for (auto& group : groups) group.join();
  const auto bytes = bytes_out(nodes, 0);
  ASSERT_EQ(bytes.size(), 3U);
  for (const auto& [backend, sent] : bytes) EXPECT_GT(sent, 1'000'000U) << backend;
  const auto table = nodes.ctl(0, {"status"}).output;
  EXPECT_THAT(table, AllOf(HasSubstr("node n1 over local: up"), HasSubstr("node n1 over tcp: up"),
                           HasSubstr("rail near on lo0: 127.0.1.1:")));
}

TEST(Backends, EachClassKeepsToItsNics) {
  std::vector<std::vector<std::string>> flags;
  for (const char* host : {"1", "2"}) {
    const std::string addresses = std::string("127.0.1.") + host + ",127.0.2." + host;
    flags.push_back({"--nics.addresses", addresses, "--class.dp.nics", "127.0.1.*", "--class.pp.nics",
                     "127.0.2.*", "--class.both.backends", "tcp"});
  }
  const BackendNodes nodes(flags);
  const auto bytes = [&] {
    std::map<std::string, uint64_t> by_net;
    const auto status = nodes.ask(0, {"status"});
    for (const auto& peer : status["peers"]) {
      for (const auto& rail : peer["rails"]) {
        by_net[rail["local"].get<std::string>().substr(0, 8)] += rail["bytes_out"].get<uint64_t>();
      }
    }
    return by_net;
  };
  const auto exchange = [&](const std::string& group_class) {
    nodes.run(group_class, [&](int rank, hdtComm_t comm, hdtResult_t made) {
      ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
      BackendNodes::sum(comm, rank, 2, 2'000'000, 2);
    });
  };
  exchange("dp");
  auto first = bytes();
  EXPECT_GT(first["127.0.1."], 8'000'000U);
  EXPECT_EQ(first["127.0.2."], 0U);
  exchange("pp");
  auto second = bytes();
  EXPECT_EQ(second["127.0.1."], first["127.0.1."]);
  EXPECT_GT(second["127.0.2."], 8'000'000U);
  exchange("both");
  const auto third = bytes();
  for (const char* net : {"127.0.1.", "127.0.2."}) EXPECT_GT(third.at(net), second[net]) << net;
}

TEST(Backends, SeveralSocketsOfOneNicCarryTheirParts) {
  const std::vector<std::string> flags = {"--class.dp.backends", "tcp", "--backend.tcp.sockets", "3"};
  const BackendNodes nodes({flags, flags});
  for (int group = 0; group < 2; ++group) {  // the second takes the link of the first
    nodes.run("dp", [&](int rank, hdtComm_t comm, hdtResult_t made) {
      ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
      BackendNodes::sum(comm, rank, 2, 2'000'000, 3);
    });
  }
  for (int node = 0; node < 2; ++node) {
    const auto status = nodes.ask(node, {"status"});
    ASSERT_EQ(status["peers"].size(), 1U);
    ASSERT_EQ(status["peers"][0]["rails"].size(), 3U);
    for (const auto& rail : status["peers"][0]["rails"])
      EXPECT_GT(rail["bytes_out"].get<uint64_t>(), 0U) << rail;
  }
}

TEST(Backends, OneLinkServesAllGroupsOfAClass) {
  const std::vector<std::string> flags = {"--class.a.backends", "local", "--class.b.backends", "local,tcp"};
  const BackendNodes nodes({flags, flags});
  for (const char* group_class : {"a", "b", "a"}) {
    nodes.run(group_class, [&](int rank, hdtComm_t comm, hdtResult_t made) {
      ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
      BackendNodes::sum(comm, rank, 2, 1'000, 2);
    });
  }
  EXPECT_EQ(nodes.ask(0, {"status"})["peers"].size(), 2U);
}

TEST(Backends, AreShownWithTheirNicsAndWhyOthersCannotBeUsed) {
  const std::vector<std::string> flags = {"--class.dp.backends", "local,tcp"};
  const BackendNodes nodes(std::vector<std::vector<std::string>>(1, flags));
  const auto answer = nodes.ask(0, {"backends"});
  std::vector<std::string> names;
  for (const auto& backend : answer["backends"]) {
    names.push_back(backend["name"]);
    EXPECT_EQ(backend["problem"], "") << backend;
    ASSERT_FALSE(backend["nics"].empty()) << backend;
    EXPECT_TRUE(backend["nics"][0]["selected"].get<bool>()) << backend;
  }
  EXPECT_THAT(names, ElementsAre("tcp", "deaf", "local", "mute", "near", "third"));
  EXPECT_THAT(answer["backends"][2]["classes"].dump(), "[\"dp\"]");
  EXPECT_THAT(nodes.ctl(0, {"backends"}).output,
              AllOf(HasSubstr("local: usable (kernel sockets)\n  classes: dp\n"), HasSubstr("127.0.1.1")));
}

// The message by which hdtcommd refuses this configuration, as it must.
std::string refusal(std::vector<std::string> flags, const std::string& modules = HDT_TEST_MODULES "/good") {
  TemporaryFolder folder;
  std::vector<std::string> command = {
      NodeProcess::program(), "--nics.addresses", "127.0.1.1", "--nics.port", "0",
      "--node.socket",        folder.file("s")};
  command.insert(command.end(), flags.begin(), flags.end());
  const ProgramRun done = run_program(command, {{"HDT_TRANSPORT_PATH", modules}});
  EXPECT_EQ(done.status, 2) << done.errors;
  // One line, behind what the log says of modules that do not load.
  const std::string line = done.errors.substr(std::min(done.errors.find("hdtcommd: "), done.errors.size()));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << done.errors;
  return line;
}

TEST(WrongConfiguration, IsRefusedWithWhatIsAvailable) {
  EXPECT_THAT(refusal({"--class.dp.backends", "rmda,tcp"}),
              HasSubstr("available are tcp, local, near, third"));
  EXPECT_THAT(refusal({"--backend.rmda.depth", "1"}), HasSubstr("available are tcp, local, near, third"));
  EXPECT_THAT(refusal({"--class.dp.backends", "local,tcp", "--class.dp.nics", "eth77"}),
              AllOf(HasSubstr("flag --class.dp.nics: class.dp.nics: no NIC of its backends fits \"eth77\""),
                    HasSubstr("local: lo0 (127.0.1.1); tcp: lo (127.0.1.1)")));
  EXPECT_THAT(refusal({"--class.dp.backends", "local,tcp", "--class.dp.nics", "lo"}),
              HasSubstr("class.dp.nics: backend local cannot be used on these NICs"));
  EXPECT_THAT(refusal({"--backend.local.adresses", "127.0.0.1"}),
              HasSubstr("no option is called \"adresses\""));
  EXPECT_THAT(refusal({"--backend.tcp.sockets", "17"}), HasSubstr("expected \"auto\" or an integer 1..16"));
  EXPECT_THAT(refusal({"--backend.tcp.sockets_", "2"}), HasSubstr("no option is called \"sockets_\""));
}

TEST(WrongConfiguration, ABackendThatDoesNotLoadIsLeftOutWhereAnotherIsUsable) {
  const std::map<std::string, std::string> environment = {{"HDT_TRANSPORT_PATH", HDT_TEST_MODULES "/broken"}};
  TemporaryFolder folder;
  {
    const NodeProcess node(folder, 0, {"--class.dp.backends", "version,tcp"}, environment);
    const ProgramRun told = run_program({HDT_HDTCTL, "--socket", node.socket(), "backends"});
    EXPECT_THAT(told.output, HasSubstr("version: not usable: backend version: "));
  }
  EXPECT_THAT(refusal({"--class.dp.backends", "version"}, HDT_TEST_MODULES "/broken"),
              HasSubstr("class.dp.backends: none of them can be used here"));
}

TEST(BackendTest, WrongUsageIsOneLineAndMissingBackendsAreNamed) {
  const auto says = [](std::vector<std::string> words, int status, const std::string& text) {
    words.insert(words.begin(), HDT_BACKEND_TEST);
    const ProgramRun done = run_program(words, {{"HDT_TRANSPORT_PATH", HDT_TEST_MODULES "/good"}});
    EXPECT_EQ(done.status, status) << done.output << done.errors;
    EXPECT_THAT(done.errors, HasSubstr(text));
    EXPECT_EQ(std::count(done.errors.begin(), done.errors.end(), '\n'), 1) << done.errors;
  };
  says({}, 2, "NAME is required");
  says({"local", "--option", "addresses"}, 2, "--option: 'addresses' given; expected KEY=VALUE");
  says({"local", "--option", "adresses=127.0.0.1"}, 2, "no option is called \"adresses\"");
  says({"local", "near"}, 2, "'near' given; expected one NAME");
  says({"rmda"}, 1, "available are tcp, local, near, third");
  says({"local", "--nic", "lo7"}, 1, "it finds lo0 (127.0.0.1)");
}

TEST(BackendTest, RunsTheSuiteOverAModule) {
  const ProgramRun done =
      run_program({HDT_BACKEND_TEST, "near", "--address", "127.0.6.1,127.0.6.2", "--gtest_filter=*InOrder*"},
                  {{"HDT_TRANSPORT_PATH", HDT_TEST_MODULES "/good"}});
  EXPECT_EQ(done.status, 0) << done.output << done.errors;
  EXPECT_THAT(done.output, AllOf(HasSubstr("backend near on lo0 (127.0.6.2)"), HasSubstr("PASSED")));
}

TEST(Commbench, TakesTheBackendThatItIsTold) {
  const std::map<std::string, std::string> environment = {{"HDT_TRANSPORT_PATH", HDT_TEST_MODULES "/good"}};
  const auto bench = [&](const std::string& backend, const std::string& daemons) {
    return run_program({HDT_COMMBENCH, "allreduce", "--nodes", "2", "--local", "1", "--backend", backend,
                        "--daemon", daemons, "-b", "64K", "-e", "64K", "-n", "2", "-w", "0"},
                       environment);
  };
  for (const char* daemons : {"embedded", "separate"}) {
    const ProgramRun done = bench("third", daemons);
    EXPECT_EQ(done.status, 0) << daemons << done.output << done.errors;
    EXPECT_NE(bench("absent", daemons).status, 0);
  }
}

// Where a node's daemon is given one of four ports, the ranks' own was among them four times in five.
TEST(Commbench, RanksMeetWhereNoDaemonListens) {
  const ProgramRun permitted = run_program({"/usr/bin/unshare", "--net", "true"}, {});
  if (permitted.status != 0)
    GTEST_SKIP() << "network namespaces are not permitted here: " << permitted.errors;
  const std::string few_ports =
      "ip link set lo up && echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range && ";
  for (int i = 0; i < 3; ++i) {
    const ProgramRun done =
        run_program({"/usr/bin/unshare", "--net", "sh", "-c",
                     few_ports + HDT_COMMBENCH " allreduce --nodes 2 --local 1 -b 8 -e 8 -n 1 -w 0"},
                    {});
    EXPECT_EQ(done.status, 0) << done.output << done.errors;
  }
}

}  // namespace
}  // namespace hdt::testing
