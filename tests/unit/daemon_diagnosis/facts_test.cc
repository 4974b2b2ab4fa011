// facts_test.cc: facts as text and back, whatever the text is.
#include "daemon/protocol/facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/unit/daemon_diagnosis/facts_builder.h"

namespace hdt::daemon::testing {
namespace {

FactsBuilder example() {
  FactsBuilder world({0, 1});
  world.enter(0, call("barrier", 0, 3));
  world.enter(0, message("recv", 1, 2, 3, 1));
  world.rail(0, "n1", "eth0", "down", 5, 6);
  world.fail(Code::kTimeout, 1, "late");
  return world;
}

TEST(Facts, RoundTrip) {
  const NodeFacts facts = example().facts()[0];
  const auto read = facts_of(to_text(facts).dump());
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(to_text(read.value()), to_text(facts));
  EXPECT_EQ(read.value().groups[0].local[0].operations[1].peer, 1);
}

// Every number, text, list or object of it becomes each of the others: refused or read, never more.
TEST(Facts, TextThatMakesNoSenseIsRefused) {
  const nlohmann::json whole = to_text(example().facts()[0]);
  const auto flat = whole.flatten();
  size_t refused = 0;
  for (const auto& [path, value] : flat.items()) {
    for (const nlohmann::json& wrong :
         {nlohmann::json(), nlohmann::json("x"), nlohmann::json::array(), nlohmann::json(1e300)}) {
      auto changed = whole;
      changed[nlohmann::json::json_pointer(path)] = wrong;
      if (!facts_of(changed.dump()).is_ok()) ++refused;
    }
  }
  EXPECT_GT(refused, flat.size());
  for (const char* text : {"", "[]", "{}", "{\"name\":", "7"}) {
    EXPECT_EQ(facts_of(text).status().code(), Code::kInvalidArgument) << text;
  }
}

// Another daemon's text decides neither how deep this one's stack goes nor how long it counts.
TEST(Facts, TextBeyondAllLimitsIsRefused) {
  constexpr size_t kDeep = 1'000'000;
  const auto deep = facts_of(std::string(kDeep, '[') + std::string(kDeep, ']'));
  EXPECT_EQ(deep.status().code(), Code::kInvalidArgument);
  const auto refused = [](const auto& change) {
    NodeFacts facts = example().facts()[0];
    change(facts);
    return !facts_of(to_text(facts).dump()).is_ok();
  };
  EXPECT_FALSE(refused([](NodeFacts&) {}));
  EXPECT_TRUE(refused([](NodeFacts& f) { f.making.emplace_back().ranks = UINT32_MAX; }));
  EXPECT_TRUE(refused([](NodeFacts& f) { f.groups[0].nodes[0].ranks.resize(200'000); }));
  EXPECT_TRUE(refused([](NodeFacts& f) { f.groups[0].code = 77; }));
}

TEST(Facts, RecentOnesAreTheUnfinishedAndTheLast) {
  FactsBuilder world({0});
  world.enter(0, message("recv", 0, 0, 900));
  for (uint64_t i = 0; i < 100; ++i) world.enter(0, call("barrier", i, 500, 400));
  NodeFacts facts = world.facts()[0];
  keep_recent(facts);
  const auto& kept = facts.groups[0].local[0].operations;
  ASSERT_EQ(kept.size(), 5U);
  EXPECT_EQ(kept[0].kind, "recv");
  EXPECT_EQ(kept[1].sequence, 96U);
  EXPECT_EQ(kept[4].sequence, 99U);
}

TEST(ProcessState, OfThisProcessAndOfNone) {
  EXPECT_EQ(process_state(static_cast<uint32_t>(::getpid())), "R");
  EXPECT_EQ(process_state(0x7ffffff0), "");
}

}  // namespace
}  // namespace hdt::daemon::testing
