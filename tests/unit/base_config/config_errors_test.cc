// config_errors_test.cc: every mistake ends in one line that names the place, the key and what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config.h"
#include "temporary_file.h"

namespace hdt {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct FileCase {
  const char* text;
  int line;
  const char* key;
  const char* what;
};

class ConfigFileErrors : public ::testing::TestWithParam<FileCase> {};

TEST_P(ConfigFileErrors, NameFileLineKeyAndWhatWasExpected) {
  test::TemporaryFolder folder;
  const std::string file = folder.write("hdt.toml", GetParam().text);
  const Result<Config> loaded = load_config({file, {}, {}, ""});
  ASSERT_FALSE(loaded.is_ok());
  EXPECT_EQ(loaded.status().code(), Code::kConfig);
  const std::string message = loaded.status().message();
  EXPECT_THAT(message, StartsWith(file + ":" + std::to_string(GetParam().line) + ": " + GetParam().key));
  EXPECT_THAT(message, HasSubstr(GetParam().what));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigFileErrors,
    ::testing::Values(
        FileCase{"[node]\nsokcet = \"/a\"\n", 2, "node.sokcet: unknown key", "did you mean node.socket?"},
        FileCase{"[node]\nport = 1\n", 2, "node.port: unknown key", "did you mean nics.port?"},
        FileCase{"\n[nodes]\nname = \"a\"\n", 3, "nodes.name: unknown section", "did you mean node.name?"},
        FileCase{"[quux]\n", 1, "quux: unknown section", ""},
        FileCase{"socket = \"/a\"\n", 1, "socket: expected a key inside of a [section]",
                 "did you mean node.socket?"},
        FileCase{"[node]\nthreads = 65\n", 2, "node.threads",
                 "expected \"auto\" or an integer 1..64, found 65"},
        FileCase{"[node]\nthreads = 0\n", 2, "node.threads", "found 0"},
        FileCase{"[node]\nthreads = \"many\"\n", 2, "node.threads", "found \"many\""},
        FileCase{"[node]\nthreads = true\n", 2, "node.threads", "found a boolean"},
        FileCase{"[node]\nsocket = \"relative\"\n", 2, "node.socket", "expected an absolute path"},
        FileCase{"[node]\nsocket = \"/a\\nb\"\n", 2, "node.socket", "control characters"},
        FileCase{"[node]\nname = \"\"\n", 2, "node.name", "found \"\""},
        FileCase{"[nics]\nuse = []\n", 2, "nics.use", "found []"},
        FileCase{"[nics]\nuse = \"eth0\"\n", 2, "nics.use", "expected a list"},
        FileCase{"[nics]\nuse = [1]\n", 2, "nics.use", "found a list with an integer in it"},
        FileCase{"[nics]\naddresses = [\"eth0\"]\n", 2, "nics.addresses", "IPv4 or IPv6"},
        FileCase{"[nics]\nport = 65536\n", 2, "nics.port", "expected an integer 0..65535, found 65536"},
        FileCase{"[timeouts]\nconnect_ms = 1.5\n", 2, "timeouts.connect_ms",
                 "found a number with a fraction"},
        FileCase{"[log]\nlevel = \"loud\"\n", 2, "log.level", "\"trace\""},
        FileCase{"[class.dp]\nbackends = [\"RDMA\"]\n", 2, "class.dp.backends",
                 "expected a list of 1 to 64 names of backends"},
        FileCase{"[class.dp]\nnics = []\n", 2, "class.dp.nics", "found []"},
        FileCase{"[backend.rdma]\ndepth = 1.5\n", 2, "backend.rdma.depth", "found a number with a fraction"},
        FileCase{"[backend.rdma]\ndepth = [\"a\"]\n", 2, "backend.rdma.depth", "found [\"a\"]"},
        FileCase{"[backend.rdma]\n\"a b\" = 1\n", 2, "backend.rdma.a b", "expected a key of letters"},
        FileCase{"[backend]\ndepth = 1\n", 2, "backend.depth", "expected [backend.NAME] around it"},
        FileCase{"[backend.Rdma]\ndepth = 1\n", 1, "backend.Rdma", "expected [backend.NAME]"},
        FileCase{"[class.dp]\nalgorithm = \"rings\"\n", 2, "class.dp.algorithm",
                 "expected \"auto\", \"ring\", \"halving_doubling\""},
        FileCase{"[class.dp]\nbackend = [\"tcp\"]\n", 2, "class.dp.backend: unknown key",
                 "did you mean class.dp.backends?"},
        FileCase{"[class]\nbackends = [\"tcp\"]\n", 2, "class.backends", "expected [class.NAME] around it"},
        FileCase{"[class.a23456789012345678901234567890123]\n", 1, "class.a2345", "1 to 31 bytes"},
        FileCase{"[node]\nname = \"a\"\nname = \"b\"\n", 3, "not valid TOML", ""},
        FileCase{"[node\n", 1, "not valid TOML", ""}));

TEST(ConfigErrors, VariablesAndFlagsAreNamed) {
  const auto message = [](ConfigSources sources) {
    sources.system_file = "";
    const Result<Config> loaded = load_config(sources);
    return loaded.is_ok() ? std::string("no error") : loaded.status().message();
  };
  EXPECT_EQ(
      message({"", {}, {{"HDT_NODE_THREADS", "2x"}}, ""}),
      "environment HDT_NODE_THREADS: node.threads: expected \"auto\" or an integer 1..64, found \"2x\"");
  EXPECT_EQ(message({"", {}, {{"HDT_NODE_SOKCET", "/a"}}, ""}),
            "environment HDT_NODE_SOKCET: unknown key; did you mean node.socket?");
  EXPECT_EQ(message({"", {{"nics.prot", "1"}}, {}, ""}),
            "flag --nics.prot: nics.prot: unknown key; did you mean nics.port?");
  EXPECT_EQ(message({"", {{"nics.port", ""}}, {}, ""}),
            "flag --nics.port: nics.port: expected an integer 0..65535, found \"\"");
  EXPECT_THAT(message({"", {{"node.name", "\xff"}}, {}, ""}), HasSubstr("broken UTF-8"));
  EXPECT_THAT(message({"", {{"class.backends", "tcp"}}, {}, ""}), HasSubstr("[class.NAME]"));
  EXPECT_THAT(message({"", {{"nics.addresses", "127.0.1.1,,"}}, {}, ""}), HasSubstr("nics.addresses"));
}

TEST(ConfigErrors, AFlagNeedsAValue) {
  std::vector<std::string> arguments = {"--node.socket"};
  EXPECT_EQ(take_config_flags(arguments).status().message(), "flag --node.socket: expected a value after it");
}

TEST(ConfigErrors, FilesThatCannotBeRead) {
  test::TemporaryFolder folder;
  const auto message = [](const std::string& file) {
    return load_config({file, {}, {}, ""}).status().message();
  };
  EXPECT_EQ(message(folder.path("none")),
            folder.path("none") + ": cannot be read: No such file or directory");
  EXPECT_EQ(message(folder.path()), folder.path() + ": expected a regular file");
  EXPECT_EQ(message(folder.write("big", std::string((1 << 20) + 1, '\n'))),
            folder.path("big") + ": expected at most 1 MiB");
  const Status variable = load_config({"", {}, {{"HDT_CONFIG", folder.path("none")}}, ""}).status();
  EXPECT_THAT(variable.message(), StartsWith(folder.path("none")));
}

}  // namespace
}  // namespace hdt
