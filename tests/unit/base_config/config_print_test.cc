// config_print_test.cc: what is printed can be read back, says where values came from, and leaves no key out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config.h"
#include "base/config_keys.h"
#include "temporary_file.h"

namespace hdt {
namespace {

using ::testing::HasSubstr;

TEST(ConfigPrint, NamesTheOriginOfEveryValue) {
  test::TemporaryFolder folder;
  const std::string file = folder.write("a.toml", "[node]\nname = \"n1\"\n");
  const Result<Config> loaded = load_config(
      {file, {{"log.level", "debug"}, {"class.dp.backends", "shm,tcp"}}, {{"HDT_NICS_PORT", "0"}}, ""});
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  const std::string text = print_config(loaded.value());
  EXPECT_THAT(text, HasSubstr("[node]\nname = \"n1\"  # " + file + ":2\n"));
  EXPECT_THAT(text, HasSubstr("threads = \"auto\"  # default\n"));
  EXPECT_THAT(text, HasSubstr("port = 0  # environment HDT_NICS_PORT\n"));
  EXPECT_THAT(text, HasSubstr("level = \"debug\"  # flag --log.level\n"));
  EXPECT_THAT(text, HasSubstr("[class.dp]\nbackends = [\"shm\", \"tcp\"]  # flag --class.dp.backends\n"));
}

TEST(ConfigPrint, WhatIsPrintedReadsBackTheSame) {
  ConfigSources sources{"", {}, {}, ""};
  sources.flags = {{"node.socket", "/tmp/\"q\"\\ä#"},
                   {"node.threads", "3"},
                   {"nics.addresses", "::1,10.0.0.1"},
                   {"class.a.b \"c\".backends", "shm"},
                   {"security.allow_groups", "hdt,root"}};
  const Result<Config> first = load_config(sources);
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  test::TemporaryFolder folder;
  const Result<Config> second =
      load_config({folder.write("a.toml", print_config(first.value())), {}, {}, ""});
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  Config a = first.value();
  Config b = second.value();
  EXPECT_EQ(b.classes.size(), 1U);
  for (const config::Key& key : config::keys()) {
    EXPECT_EQ(config::toml_text(key, a, "a.b \"c\""), config::toml_text(key, b, "a.b \"c\"")) << key.name;
  }
}

TEST(ConfigPrint, TheReferenceHasEveryKey) {
  const std::string reference = config_reference();
  for (const config::Key& key : config::keys()) {
    const bool of_class = std::string(key.section) == config::kClassSection;
    const std::string name = config::full_name(key.section, of_class ? "NAME" : "", key.name);
    EXPECT_THAT(reference, HasSubstr("| `" + name + "` |"));
    EXPECT_THAT(reference, HasSubstr(key.help));
  }
  EXPECT_THAT(reference, HasSubstr("`HDT_CLASS_NAME_BACKENDS`"));
}

TEST(ConfigKeys, DefaultsPassTheirOwnChecks) {
  Config defaults;
  defaults.node.name = "n1";
  defaults.classes["dp"];
  test::TemporaryFolder folder;
  const Result<Config> again = load_config({folder.write("a.toml", print_config(defaults)), {}, {}, ""});
  EXPECT_TRUE(again.is_ok()) << again.status().to_string();
}

}  // namespace
}  // namespace hdt
