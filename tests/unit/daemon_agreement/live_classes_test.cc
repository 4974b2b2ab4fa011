#include "daemon/protocol/live_classes.h"

#include <gtest/gtest.h>

namespace hdt::daemon {
namespace {

TEST(LiveClasses, HoldTheLastValueOfEachKeyThatWasChanged) {
  LiveClasses live;
  EXPECT_EQ(live.of("dp"), LiveClass{});
  live.changed("class.dp.backends=tcp,near\nclass.dp.weight=2");
  EXPECT_EQ(live.of("dp"), (LiveClass{1, "class.dp.backends=tcp,near\nclass.dp.weight=2"}));
  live.changed("class.dp.backends=local");
  EXPECT_EQ(live.of("dp"), (LiveClass{2, "class.dp.weight=2\nclass.dp.backends=local"}));
  EXPECT_EQ(live.of("tp"), LiveClass{});
}

TEST(LiveClasses, AreNewerAfterEachChangeAlsoBackToTheFile) {
  LiveClasses live;
  live.changed("class.dp.weight=2");
  const LiveClass first = live.of("dp");
  live.as_configured();
  EXPECT_EQ(live.of("dp"), (LiveClass{2, ""}));
  EXPECT_GT(live.of("dp"), first);
  live.take("dp", {7, "class.dp.weight=5"});
  live.changed("class.dp.weight=6");
  EXPECT_EQ(live.of("dp"), (LiveClass{8, "class.dp.weight=6"}));
  // Two nodes that were told of different changes find the same one newer.
  EXPECT_NE((LiveClass{2, "class.dp.weight=1"} < LiveClass{2, "class.dp.weight=2"}),
            (LiveClass{2, "class.dp.weight=2"} < LiveClass{2, "class.dp.weight=1"}));
}

TEST(LiveClasses, MakeAClassOutOfTheFileAndWhatWasChanged) {
  Config configured;
  configured.classes["dp"].weight = 3;
  configured.classes["tp"].weight = 4;
  Config now = configured;
  now.classes["dp"].priority = "latency";
  now.classes["tp"].weight = 9;
  const auto config = with_live_class(now, configured, "dp", {2, "class.dp.backends=near,tcp"});
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config.value().class_named("dp").backends, (std::vector<std::string>{"near", "tcp"}));
  EXPECT_EQ(config.value().class_named("dp").weight, 3);
  EXPECT_EQ(config.value().class_named("dp").priority, "bulk");
  EXPECT_EQ(config.value().class_named("tp").weight, 9);
  EXPECT_EQ(with_live_class(now, configured, "dp", {3, ""}).value().class_named("dp").weight, 3);
}

// They come from other nodes.
TEST(LiveClasses, TakeNothingButKeysOfTheClass) {
  const Config config;
  for (const char* settings : {"class.tp.weight=2", "node.name=x", "class.dp.weight=0", "class.dp.colour=1",
                               "=", "class.dp.", "class.dp.x.weight=2"}) {
    EXPECT_FALSE(with_live_class(config, config, "dp", {1, settings}).is_ok()) << settings;
  }
}

// "dp.x" is another class than "dp", whose keys begin alike.
TEST(LiveClasses, LeaveTheOriginsOfAClassWithALongerName) {
  Config configured;
  configured.classes["dp"].weight = 3;
  configured.origins["class.dp.weight"] = "file:1";
  Config now = configured;
  now.classes["dp.x"].weight = 4;
  now.origins["class.dp.x.weight"] = "hdtctl";
  const Config config = with_live_class(now, configured, "dp", {1, "class.dp.nics=eth1"}).value();
  EXPECT_EQ(config.origins.at("class.dp.x.weight"), "hdtctl");
  EXPECT_EQ(config.origins.at("class.dp.weight"), "file:1");
  EXPECT_EQ(config.class_named("dp.x").weight, 4);
  EXPECT_EQ(
      with_live_class(now, configured, "dp.x", {1, "class.dp.x.weight=5"}).value().class_named("dp.x").weight,
      5);
}

}  // namespace
}  // namespace hdt::daemon
