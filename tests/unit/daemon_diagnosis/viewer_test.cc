#include "daemon/protocol/viewer.h"

#include <gtest/gtest.h>

#include "daemon/protocol/facts.h"

namespace hdt::daemon {
namespace {

NodeId node_numbered(int number) {
  NodeId id;
  id.bytes[0] = static_cast<std::byte>(number);
  return id;
}

// Groups "a" of user 1 with node 1, and "b" of user 2 with node 2; "c" of user 1 is being made with node 2.
NodeFacts facts_of_two_users() {
  NodeFacts facts;
  for (uint32_t user : {1U, 2U}) {
    GroupFacts& group = facts.groups.emplace_back();
    group.id = user == 1 ? "a" : "b";
    group.users = {user};
    group.members = {node_numbered(0), node_numbered(static_cast<int>(user))};
    group.nodes.push_back({"n" + std::to_string(user), "", {}});
    facts.rails.emplace_back().node = group.nodes[0].name;
  }
  MakingFacts& making = facts.making.emplace_back();
  making.id = "c";
  making.users = {1};
  making.members = {node_numbered(2)};
  return facts;
}

TEST(Viewer, OfAUserSeesItsGroupsAndTheRailsToTheirNodes) {
  NodeFacts facts = facts_of_two_users();
  hide_others(facts, {false, 1U, {}});
  EXPECT_EQ(groups_in(facts), (std::vector<std::string>{"a", "c"}));
  ASSERT_EQ(facts.rails.size(), 1U);
  EXPECT_EQ(facts.rails[0].node, "n1");
  EXPECT_EQ(facts.hidden, 1U);
}

TEST(Viewer, OfAllSeesAllAndOneWithoutANumberNothing) {
  NodeFacts facts = facts_of_two_users();
  hide_others(facts, {true, 0U, {}});
  EXPECT_EQ(groups_in(facts).size(), 3U);
  EXPECT_EQ(facts.hidden, 0U);
  hide_others(facts, {false, std::nullopt, {}});
  EXPECT_TRUE(groups_in(facts).empty());
  EXPECT_TRUE(facts.rails.empty());
  EXPECT_EQ(facts.hidden, 3U);
}

TEST(Viewer, SeesGroupsThatItIsInOnTheNodeThatAsks) {
  NodeFacts facts = facts_of_two_users();
  hide_others(facts, {false, 3U, {"b"}});
  EXPECT_EQ(groups_in(facts), (std::vector<std::string>{"b"}));
}

TEST(Viewer, ADaemonThatProvesNothingHearsOfTheGroupsThatItIsIn) {
  NodeFacts facts = facts_of_two_users();
  hide_from_node(facts, node_numbered(2));
  EXPECT_EQ(groups_in(facts), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(facts.hidden, 1U);
  hide_from_node(facts, node_numbered(9));
  EXPECT_TRUE(groups_in(facts).empty());
}

TEST(Viewer, IsReadAsItWasWritten) {
  Writer writer;
  const Viewer written{false, 7U, {"a", "b"}};
  fields(writer, written);
  Reader reader(writer.written());
  Viewer viewer;
  fields(reader, viewer);
  EXPECT_TRUE(reader.complete());
  EXPECT_FALSE(viewer.all);
  EXPECT_EQ(viewer.uid, 7U);
  EXPECT_EQ(viewer.groups, (std::vector<std::string>{"a", "b"}));
  auto bytes = writer.take();
  bytes[0] = std::byte{2};
  Reader wrong(bytes);
  fields(wrong, viewer);
  EXPECT_TRUE(wrong.failed());
}

}  // namespace
}  // namespace hdt::daemon
