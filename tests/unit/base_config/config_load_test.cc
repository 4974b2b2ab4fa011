// config_load_test.cc: defaults, file, environment and flags, in this order of strength.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/config.h"
#include "temporary_file.h"

namespace hdt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// No test reads the machine's own /etc/hdt.
ConfigSources sources(const std::string& file = "") { return {file, {}, {}, "/nonexistent/hdt.toml"}; }

TEST(ConfigLoad, WithoutAnySourceTheDefaults) {
  const Result<Config> loaded = load_config(sources());
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  const Config& config = loaded.value();
  char host[65] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  EXPECT_EQ(config.node.name, host);
  EXPECT_EQ(config.node.socket, "/run/hdt/hdtcommd.sock");
  EXPECT_EQ(config.node.threads, kThreadsAuto);
  EXPECT_EQ(config.nics.port, 18520);
  EXPECT_EQ(config.timeouts.drain_ms, 5000);
  EXPECT_EQ(config.log_level(), LogLevel::kInfo);
  EXPECT_THAT(config.classes, IsEmpty());
  EXPECT_THAT(config.origins, IsEmpty());
}

TEST(ConfigLoad, AFileSetsEveryKey) {
  test::TemporaryFolder folder;
  const std::string file = folder.write("a.toml", R"([node]
name = "n1"
socket = "/tmp/n1.sock"
threads = 4
[nics]
use = ["eth*", "mlx5_*"]
exclude = []
addresses = ["127.0.1.1", "::1"]
port = 0
[security]
cluster_key_file = "/etc/hdt/cluster.key"
allow_groups = ["hdt"]
[timeouts]
connect_ms = 1
drain_ms = 0
restart_ms = 3600000
[log]
level = "trace"
file = "/var/log/hdt.log"
[class.tp]
backends = ["shm"]
[class."a b"]
)");
  const Result<Config> loaded = load_config(sources(file));
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  const Config& config = loaded.value();
  EXPECT_EQ(config.node.name, "n1");
  EXPECT_EQ(config.node.socket, "/tmp/n1.sock");
  EXPECT_EQ(config.node.threads, 4);
  EXPECT_THAT(config.nics.use, ElementsAre("eth*", "mlx5_*"));
  EXPECT_THAT(config.nics.exclude, IsEmpty());
  EXPECT_THAT(config.nics.addresses, ElementsAre("127.0.1.1", "::1"));
  EXPECT_EQ(config.nics.port, 0);
  EXPECT_EQ(config.security.cluster_key_file, "/etc/hdt/cluster.key");
  EXPECT_THAT(config.security.allow_groups, ElementsAre("hdt"));
  EXPECT_EQ(config.timeouts.connect_ms, 1);
  EXPECT_EQ(config.timeouts.drain_ms, 0);
  EXPECT_EQ(config.timeouts.restart_ms, 3'600'000);
  EXPECT_EQ(config.log_level(), LogLevel::kTrace);
  EXPECT_EQ(config.log.file, "/var/log/hdt.log");
  ASSERT_EQ(config.classes.size(), 2U);
  EXPECT_THAT(config.classes.at("tp").backends, ElementsAre("shm"));
  EXPECT_THAT(config.classes.at("a b").backends, ElementsAre("tcp"));
  EXPECT_EQ(config.origins.at("nics.port"), file + ":9");
}

TEST(ConfigLoad, EnvironmentBeatsFileAndFlagsBeatBoth) {
  test::TemporaryFolder folder;
  ConfigSources all =
      sources(folder.write("a.toml", "[node]\nname = \"file\"\nthreads = 1\n[nics]\nport = 1\n"));
  all.environment = {
      {"HDT_NODE_NAME", "variable"}, {"HDT_NODE_THREADS", "2"}, {"HDT_RANK", "7"}, {"HDT_SIZE", "x"}};
  all.flags = {{"node.name", "first"}, {"node.name", "flag"}};
  const Result<Config> loaded = load_config(all);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value().node.name, "flag");
  EXPECT_EQ(loaded.value().node.threads, 2);
  EXPECT_EQ(loaded.value().nics.port, 1);
  EXPECT_EQ(loaded.value().origins.at("node.name"), "flag --node.name");
  EXPECT_EQ(loaded.value().origins.at("node.threads"), "environment HDT_NODE_THREADS");
}

TEST(ConfigLoad, ListsInVariablesAndFlagsAreSeparatedByCommas) {
  ConfigSources all = sources();
  all.environment = {{"HDT_NICS_ADDRESSES", "127.0.1.1, 127.0.1.2"}, {"HDT_NICS_EXCLUDE", ""}};
  all.flags = {{"class.dp.backends", "tcp,shm"}};
  const Result<Config> loaded = load_config(all);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  EXPECT_THAT(loaded.value().nics.addresses, ElementsAre("127.0.1.1", "127.0.1.2"));
  EXPECT_THAT(loaded.value().nics.exclude, IsEmpty());
  EXPECT_THAT(loaded.value().classes.at("dp").backends, ElementsAre("tcp", "shm"));
}

TEST(ConfigLoad, ClassVariablesFindTheFilesSpelling) {
  test::TemporaryFolder folder;
  ConfigSources all = sources(folder.write("a.toml", "[class.Dp-1]\nbackends = [\"tcp\"]\n"));
  all.environment = {{"HDT_CLASS_DP_1_BACKENDS", "shm"}, {"HDT_CLASS_PP_BACKENDS", "shm,tcp"}};
  const Result<Config> loaded = load_config(all);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  ASSERT_EQ(loaded.value().classes.size(), 2U);
  EXPECT_THAT(loaded.value().classes.at("Dp-1").backends, ElementsAre("shm"));
  EXPECT_THAT(loaded.value().classes.at("pp").backends, ElementsAre("shm", "tcp"));
}

TEST(ConfigLoad, KeysOfBackendsAreKeptAsText) {
  test::TemporaryFolder folder;
  ConfigSources all = sources(folder.write(
      "a.toml",
      "[backend.rdma]\nqueue_pairs = 4\ninline = true\ngid = \"auto\"\n[class.dp]\nnics = [\"eth1\"]\n"));
  all.environment = {{"HDT_BACKEND_RDMA_GID", "3"}, {"HDT_BACKEND_OFI_PROVIDER_NAME", "tcp;ofi_rxm"}};
  all.flags = {{"backend.ucx.UCX_TLS", "tcp,self"}};
  const Result<Config> loaded = load_config(all);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  using Options = std::map<std::string, std::string>;
  EXPECT_EQ(loaded.value().backends.at("rdma"),
            (Options{{"gid", "3"}, {"inline", "true"}, {"queue_pairs", "4"}}));
  EXPECT_EQ(loaded.value().backends.at("ofi"), (Options{{"provider_name", "tcp;ofi_rxm"}}));
  EXPECT_EQ(loaded.value().backends.at("ucx"), (Options{{"UCX_TLS", "tcp,self"}}));
  EXPECT_THAT(loaded.value().classes.at("dp").nics, ElementsAre("eth1"));
  const Result<Config> again = load_config(sources(folder.write("b.toml", print_config(loaded.value()))));
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(again.value().backends, loaded.value().backends);
}

TEST(ConfigLoad, TheFileIsTheGivenOneThenTheVariablesThenTheSystems) {
  test::TemporaryFolder folder;
  ConfigSources all;
  all.system_file = folder.write("system.toml", "[node]\nname = \"system\"\n");
  EXPECT_EQ(load_config(all).take().node.name, "system");
  all.environment = {{"HDT_CONFIG", folder.write("variable.toml", "[node]\nname = \"variable\"\n")}};
  EXPECT_EQ(load_config(all).take().node.name, "variable");
  all.file = folder.write("given.toml", "[node]\nname = \"given\"\n");
  EXPECT_EQ(load_config(all).take().node.name, "given");
}

TEST(ConfigLoad, FlagsAreTakenOutOfACommandLine) {
  std::vector<std::string> arguments = {"--node.socket", "/a",       "--print-config",
                                        "--nics.port=0", "--config", "a.toml"};
  const Result<ConfigPairs> flags = take_config_flags(arguments);
  ASSERT_TRUE(flags.is_ok());
  EXPECT_EQ(flags.value(), (ConfigPairs{{"node.socket", "/a"}, {"nics.port", "0"}}));
  EXPECT_THAT(arguments, ElementsAre("--print-config", "--config", "a.toml"));
}

TEST(ConfigLoad, ClassesFallBackToTheDefaultClass) {
  Config config;
  EXPECT_THAT(config.class_named("dp").backends, ElementsAre("tcp"));
  config.classes["default"].backends = {"shm"};
  config.classes["pp"].backends = {"shm", "tcp"};
  EXPECT_THAT(config.class_named("dp").backends, ElementsAre("shm"));
  EXPECT_THAT(config.class_named("pp").backends, ElementsAre("shm", "tcp"));
}

TEST(ConfigLoad, NicsAreSelectedByPatternAndByName) {
  Config::Nics nics;
  EXPECT_TRUE(nic_selected(nics, "eth0"));
  for (const char* name : {"lo", "docker0", "veth12ab", "br-1234", "virbr0"})
    EXPECT_FALSE(nic_selected(nics, name));
  nics.use = {"eth*", "docker0"};
  EXPECT_TRUE(nic_selected(nics, "docker0"));
  EXPECT_FALSE(nic_selected(nics, "docker1"));
  EXPECT_FALSE(nic_selected(nics, "ib0"));
}

TEST(ConfigLoad, AutomaticThreadsFollowNicsAndCores) {
  Config config;
  EXPECT_EQ(engine_threads(config, 1, 2), 1);
  EXPECT_EQ(engine_threads(config, 9, 16), 2);
  EXPECT_EQ(engine_threads(config, 64, 4), 2);
  EXPECT_EQ(engine_threads(config, 0, 1), 1);
  config.node.threads = 5;
  EXPECT_EQ(engine_threads(config, 1, 2), 5);
}

}  // namespace
}  // namespace hdt
