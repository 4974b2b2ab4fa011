// wire_test.cc: frames, notes and control messages survive the way; damaged ones are refused or mean what
// they say.
#include "daemon/protocol/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "base/crc32c.h"
#include "daemon/protocol/control_messages.h"

namespace hdt::daemon {
namespace {

std::vector<EngineMessage> examples() {
  ipc::Call call;
  call.count = 77;
  call.root = 2;
  transport::RegionKey key;
  key.bytes[5] = std::byte{8};
  return {GroupHello{1, 2, key, 30},
          ChunkCredit{1, 2, 3},
          CellCredit{1, 2, 3, 4},
          CallMessage{1, 2, 3, call},
          RingEnded{1, 2, 3, 4},
          RankDeparted{1, 2, 3},
          NodeDeparted{1, 2},
          GroupSeated{1, 2},
          GroupReady{1, 2},
          GroupUnknown{1},
          GroupFailed{1, Code::kTimeout, 4, "late"},
          OutputMessage{1, 2, 3, call, 1, key, 99},
          ProbeMessage{0, ProbeMessage::Kind::kPong, key},
          RatesMessage{1, 2, {{3, 4}, {{5, 6, 7}, {8, 9, 10}}}},
          ChunkState{1, 2, 3, {4, 5}},
          RingState{1, 2, 3, 4, 5},
          Resume{1, 2, 3, 4, 5},
          ClassPrepare{1, 2, "class.dp.weight=2"},
          ClassEnds{1, 2, {{"tcp", "eth0", "127.0.1.1:5"}, {"rdma", "mlx5_0", std::string("\xff\0", 2)}}},
          ClassReady{1, 2, Code::kConfig, "no"},
          ClassCommit{1, 2, 1},
          LinkMoved{1},
          LinkDrained{0},
          RateChangeMessage{1, 2, RateChangeMessage::Kind::kCommit, 3, 4, {16, 1, 8, 255}}};
}

std::vector<ControlMessage> control_examples() {
  NodeInfo node;
  node.name = "n";
  node.rails = {{{"tcp", "eth0", "127.0.1.1:5"}, {"rdma", "mlx5_0", "127.0.1.2:6"}}};
  node.address = "127.0.1.1:4";
  NodeInfo other = node;
  other.id.bytes[0] = std::byte{1};
  return {Join{GroupKey{}, 4, 3, "dp", collectives::Algorithm::kBruck, 1000, node, ipc::Meeting::kAddress, 11,
               12, 13, Code::kSystem, "no memory"},
          Cancel{GroupKey{}, Code::kRankLost, 3, "gone"},
          Membership{GroupKey{}, GroupKey{std::byte{8}}, "dp", {node, other}, {0, 1, 1}},
          Outcome{GroupKey{}, Code::kLink, -1, "no"},
          Inquiry{7, "facts", Viewer{false, 1000, {"1a2b3c4d"}}},
          Reply{7, Code::kSuccess, 12, "{}"},
          Successor{1, 2, 3, "dp", {4, "class.dp.weight=2"}, node},
          SuccessorReply{1, 2, 3, Code::kSuccess, -1, "", {5, ""}, node}};
}

TEST(Wire, FramesRoundTrip) {
  const auto chunk = std::get<ChunkFrame>(decode_frame(encode(ChunkFrame{1, 2, 3, 4})));
  EXPECT_EQ(chunk.group, 1U);
  EXPECT_EQ(chunk.chunk, 2U);
  EXPECT_EQ(chunk.from, 3U);
  EXPECT_EQ(chunk.tag, 4U);
  const auto cell = std::get<CellFrame>(decode_frame(encode(CellFrame{1, 2, 3, 4})));
  EXPECT_EQ(cell.source, 3U);
  EXPECT_TRUE(std::holds_alternative<ProbeFrame>(decode_frame(encode(ProbeFrame{0}))));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode_frame(transport::LinkHeader{})));
}

// Reader and writer follow one description, so only this test sees that a message has changed. Whoever
// changes one raises kPeerVersion, and the sum of its bytes here.
TEST(Wire, TheBytesOfThisVersion) {
  const auto sum = [](std::span<const std::byte> bytes) {
    return std::to_string(bytes.size()) + " bytes, " + std::to_string(crc32c(0, bytes));
  };
  EXPECT_EQ(sum(encode(ChunkFrame{1, 2, 3, 4})), "32 bytes, 3669709689");
  EXPECT_EQ(sum(encode(CellFrame{1, 2, 3, 4})), "32 bytes, 2622497316");
  EXPECT_EQ(sum(encode(ProbeFrame{0})), "32 bytes, 3430565879");
  std::vector<std::string> notes(std::variant_size_v<EngineMessage>);
  for (const EngineMessage& note : examples()) notes[note.index()] = sum(encode(note));
  EXPECT_THAT(
      notes, ::testing::ElementsAre("", "53 bytes, 692635197", "21 bytes, 1521107967", "25 bytes, 1188606617",
                                    "37 bytes, 4220722749", "21 bytes, 2040345212", "13 bytes, 2426520331",
                                    "25 bytes, 623000902", "78 bytes, 4196754213", "42 bytes, 2405015464",
                                    "81 bytes, 2255769952", "38 bytes, 1420662052", "75 bytes, 2117578565",
                                    "27 bytes, 1781870374", "18 bytes, 3506787771", "9 bytes, 2378836233",
                                    "9 bytes, 3471768444", "33 bytes, 3390871936", "33 bytes, 634879522",
                                    "37 bytes, 3012514980", "13 bytes, 4061310594", "13 bytes, 3267401447",
                                    "9 bytes, 3029114377", "38 bytes, 4137993639", "25 bytes, 2824572949"));
  std::vector<std::string> messages(std::variant_size_v<ControlMessage>);
  for (const ControlMessage& message : control_examples()) messages[message.index()] = sum(encode(message));
  EXPECT_THAT(messages, ::testing::ElementsAre("", "197 bytes, 1282014212", "49 bytes, 3589418823",
                                               "305 bytes, 4138137679", "47 bytes, 59339212",
                                               "40 bytes, 1206690270", "27 bytes, 436418795",
                                               "159 bytes, 3765114736", "148 bytes, 1354477496"));
  // Texts are cut, and what is not there has its own form.
  const std::string long_text(9000, 'x');
  EXPECT_EQ(sum(encode(GroupFailed{1, Code::kTimeout, 4, long_text})), "2069 bytes, 1218876788");
  EXPECT_EQ(sum(encode(ClassPrepare{1, 2, long_text})), "2069 bytes, 2887498727");
  EXPECT_EQ(sum(encode(Cancel{GroupKey{}, Code::kTimeout, 4, long_text})), "4141 bytes, 3724200864");
  EXPECT_EQ(sum(encode(Inquiry{7, long_text, Viewer{true, {}, {}}})), "4119 bytes, 2494401500");
  EXPECT_EQ(sum(encode(Join{GroupKey{}, 4, 3, "dp", {}, 1000, {}, {}, 11, 12, 13})), "109 bytes, 1437652770");
}

TEST(Wire, NotesRoundTripAndNeverReadBeyondTheirBytes) {
  for (const EngineMessage& note : examples()) {
    const auto bytes = encode(note);
    const EngineMessage decoded = decode_engine_message(bytes);
    EXPECT_EQ(decoded.index(), note.index());
    EXPECT_EQ(encode(decoded), bytes);
    const bool of_the_link =
        std::holds_alternative<ProbeMessage>(note) || std::holds_alternative<LinkDrained>(note);
    EXPECT_EQ(group_of(decoded), of_the_link ? 0U : 1U);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_TRUE(
          std::holds_alternative<std::monostate>(decode_engine_message(std::span(bytes).first(length))));
    }
  }
}

// A reason that another daemon sends goes to logs, processes and terminals.
TEST(Wire, ReasonsFromOtherDaemonsAreMadePlain) {
  const std::string hostile = "\x1b[2J gone\xff\n";
  const std::string plain = "?[2J gone??";
  const auto failed = decode_engine_message(encode(GroupFailed{1, Code::kTimeout, 4, hostile}));
  EXPECT_EQ(std::get<GroupFailed>(failed).text, plain);
  const auto ready = decode_engine_message(encode(ClassReady{0, 2, Code::kConfig, hostile}));
  EXPECT_EQ(std::get<ClassReady>(ready).text, plain);
  const auto cancel = decode_control(encode(Cancel{GroupKey{}, Code::kRankLost, 3, hostile}));
  EXPECT_EQ(std::get<Cancel>(cancel).text, plain);
  const auto outcome = decode_control(encode(Outcome{GroupKey{}, Code::kLink, -1, hostile}));
  EXPECT_EQ(std::get<Outcome>(outcome).text, plain);
  const auto reply = decode_control(encode(Reply{7, Code::kTimeout, 12, hostile}));
  EXPECT_EQ(std::get<Reply>(reply).text, plain);
}

// The bytes of a note are limited, and so are the tags that one may have.
TEST(Wire, MoreTagsThanANoteTakesAreRefused) {
  ChunkState state{1, 2, 3, std::vector<uint32_t>(kMaxTags, 7)};
  EXPECT_LE(encode(state).size(), transport::kMaxLinkMessageBytes);
  EXPECT_TRUE(std::holds_alternative<ChunkState>(decode_engine_message(encode(state))));
  state.tags.push_back(7);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode_engine_message(encode(state))));
}

TEST(Wire, ControlMessagesRoundTrip) {
  for (const ControlMessage& message : control_examples()) {
    const auto bytes = encode(message);
    const ControlMessage decoded = decode_control(bytes);
    EXPECT_EQ(decoded.index(), message.index());
    EXPECT_EQ(encode(decoded), bytes);
  }
}

TEST(Wire, AMembershipMustBeConsistent) {
  Membership membership = std::get<Membership>(control_examples()[2]);
  membership.node_of_rank[0] = 2;
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode_control(encode(membership))));
  membership = std::get<Membership>(control_examples()[2]);
  membership.nodes[0].rails.clear();
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode_control(encode(membership))));
  const auto refused = [](const auto& change) {
    Membership changed = std::get<Membership>(control_examples()[2]);
    change(changed);
    return std::holds_alternative<std::monostate>(decode_control(encode(changed)));
  };
  EXPECT_FALSE(refused([](Membership&) {}));
  EXPECT_TRUE(refused([](Membership& m) { m.node_of_rank = {0, 0, 0}; })) << "a node of no ranks";
  EXPECT_TRUE(refused([](Membership& m) { m.nodes[1].id = m.nodes[0].id; })) << "a node twice";
  EXPECT_TRUE(refused([](Membership& m) {
    m.node_of_rank.assign(ipc::kMaxLocalRanks + 2, 1);
    m.node_of_rank.front() = 0;
  }));
  EXPECT_TRUE(refused([](Membership& m) { m.nodes[1].name = "n\n"; }));
  EXPECT_TRUE(refused([](Membership& m) { m.group_class = "\x1b[2J"; }));
}

// Everything that is made of a call, its description too, counts on its kinds being known.
TEST(Wire, ACallOfAnotherNodeMustBeOne) {
  const auto refused = [](const auto& change) {
    ipc::Call call;
    change(call);
    const transport::RegionKey key;
    return std::holds_alternative<std::monostate>(
               decode_engine_message(encode(EngineMessage(CallMessage{1, 2, 3, call})))) &&
           std::holds_alternative<std::monostate>(
               decode_engine_message(encode(EngineMessage(OutputMessage{1, 2, 3, call, 1, key, 0}))));
  };
  EXPECT_FALSE(refused([](ipc::Call&) {}));
  EXPECT_TRUE(refused([](ipc::Call& c) { c.what = static_cast<collectives::Collective>(6); }));
  EXPECT_TRUE(refused([](ipc::Call& c) { c.type = static_cast<collectives::DataType>(255); }));
  EXPECT_TRUE(refused([](ipc::Call& c) { c.op = static_cast<collectives::ReduceOp>(9); }));
  EXPECT_TRUE(refused([](ipc::Call& c) { c.root = -1; }));
  EXPECT_TRUE(refused([](ipc::Call& c) { c.count = UINT64_MAX; }));
}

// A link has some part of its rates. It may have more than was measured.
TEST(Wire, PartsOfLinksAreNeverNothing) {
  RateChangeMessage change{1, 2, RateChangeMessage::Kind::kNow, 3, 0, {16, 255, 1}};
  EXPECT_FALSE(std::holds_alternative<std::monostate>(decode_engine_message(encode(change))));
  change.parts[1] = 0;
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decode_engine_message(encode(change))));
}

TEST(Wire, DamagedBytesAreRefusedOrMeanWhatTheySay) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const auto damage = [&](std::vector<std::byte> bytes) {
    for (uint64_t flips = random() % 5 + 1; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (random() % 8 == 0) bytes.resize(bytes.size() + random() % 9);
    return bytes;
  };
  // Readers replace bytes of a text that are not plain by '?'.
  const auto is_written_as = [](const std::vector<std::byte>& read, const std::vector<std::byte>& written) {
    return std::ranges::equal(written, read, [](std::byte now, std::byte before) {
      return now == before ||
             (now == std::byte{'?'} && (before < std::byte{0x20} || before > std::byte{0x7e}));
    });
  };
  for (int round = 0; round < 3000; ++round) {
    for (const EngineMessage& note : examples()) {
      const auto bytes = damage(encode(note));
      const EngineMessage decoded = decode_engine_message(bytes);
      if (!std::holds_alternative<std::monostate>(decoded)) {
        EXPECT_TRUE(is_written_as(bytes, encode(decoded))) << ::testing::PrintToString(bytes);
      }
    }
    for (const ControlMessage& message : control_examples()) {
      const auto bytes = damage(encode(message));
      const ControlMessage decoded = decode_control(bytes);
      if (!std::holds_alternative<std::monostate>(decoded)) {
        EXPECT_TRUE(is_written_as(bytes, encode(decoded))) << ::testing::PrintToString(bytes);
      }
    }
  }
}

}  // namespace
}  // namespace hdt::daemon
