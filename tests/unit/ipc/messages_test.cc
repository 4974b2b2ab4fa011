// messages_test.cc: session messages survive the way, and foreign bytes are refused or read as what they say.
#include "ipc/messages.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "base/codec.h"
#include "base/crc32c.h"

namespace hdt::ipc {
namespace {

JoinRequest example_join() {
  JoinRequest join;
  join.request = 5;
  join.key[3] = std::byte{9};
  join.rendezvous = "127.0.1.1:4000";
  join.meeting = Meeting::kAddress;
  join.host = Hosting::kListenOnNics;
  join.place = "MASTER_ADDR=n1, MASTER_PORT=4000";
  join.process_age_ms = 7;
  join.ranks = 4;
  join.rank = 3;
  join.group_class = "dp";
  join.timeout_ms = 1000;
  join.code = Code::kSystem;
  join.text = "no memory";
  return join;
}

TEST(Messages, RoundTrip) {
  const auto join = decode_join(encode(example_join()));
  ASSERT_TRUE(join.is_ok());
  EXPECT_EQ(join.value().key, example_join().key);
  EXPECT_EQ(join.value().rendezvous, "127.0.1.1:4000");
  EXPECT_EQ(join.value().meeting, Meeting::kAddress);
  EXPECT_EQ(join.value().host, Hosting::kListenOnNics);
  EXPECT_EQ(join.value().place, "MASTER_ADDR=n1, MASTER_PORT=4000");
  EXPECT_EQ(join.value().process_age_ms, 7);
  EXPECT_EQ(join.value().rank, 3U);
  EXPECT_EQ(join.value().group_class, "dp");
  EXPECT_EQ(join.value().code, Code::kSystem);
  EXPECT_EQ(join.value().text, "no memory");
  const auto welcome = decode_welcome(encode(Welcome{"hdt", "n1", 12, 2}));
  ASSERT_TRUE(welcome.is_ok());
  EXPECT_EQ(welcome.value().node, "n1");
  EXPECT_EQ(welcome.value().host_pid, 12U);
  const auto notice = decode_notice(encode(Kind::kFail, GroupNotice{3, Code::kTimeout, 2, "late"}));
  ASSERT_TRUE(notice.is_ok());
  EXPECT_EQ(notice.value().text, "late");
  const auto explain = decode_explain(encode(ExplainRequest{"dp", "reduce", "float16", 4096, 2}));
  ASSERT_TRUE(explain.is_ok());
  EXPECT_EQ(explain.value().group, "dp");
  EXPECT_EQ(explain.value().what, "reduce");
  EXPECT_EQ(explain.value().type, "float16");
  EXPECT_EQ(explain.value().bytes, 4096U);
  EXPECT_EQ(explain.value().root, 2);
}

// Reader and writer follow one description, so only this test sees that a message has changed. Whoever
// changes one raises kSessionVersion, and the sum of its bytes here.
TEST(Messages, TheBytesOfThisVersion) {
  const auto sum = [](const std::vector<std::byte>& bytes) {
    return std::to_string(bytes.size()) + " bytes, " + std::to_string(crc32c(0, bytes));
  };
  Welcome welcome{"hdtcommd 1", "n1", 12, 2, 30};
  Joined joined{1, Code::kTimeout, "late", 2, 3, 4, {}};
  joined.secret[31] = std::byte{7};
  const std::string long_text(kMaxText + 1, 'x');
  EXPECT_EQ(sum(encode(Hello{"libhdt 1"})), "21 bytes, 185353368");
  EXPECT_EQ(sum(encode(welcome)), "45 bytes, 3007305774");
  EXPECT_EQ(sum(encode(example_join())), "140 bytes, 1360432606");
  EXPECT_EQ(sum(encode(AdoptRequest{1, 2, 3})), "13 bytes, 2382218769");
  EXPECT_EQ(sum(encode(joined)), "61 bytes, 1400950865");
  EXPECT_EQ(sum(encode(Kind::kFail, GroupNotice{3, Code::kTimeout, -1, long_text})), "4113 bytes, 603099604");
  EXPECT_EQ(sum(encode(Kind::kShare, MemoryRequest{1, 2, 3})), "17 bytes, 1076057558");
  EXPECT_EQ(sum(encode(MemoryAnswer{1, Code::kConfig, "no", 3})), "23 bytes, 3848369814");
  EXPECT_EQ(sum(encode(ExplainRequest{"dp", "reduce", "float16", 4096, 2})), "40 bytes, 2484675221");
  EXPECT_EQ(sum(encode(Question{"link", "n2"})), "15 bytes, 3536072037");
  EXPECT_EQ(sum(encode_text(Kind::kRefused, Code::kConfig, long_text)), "4105 bytes, 3423867642");
  EXPECT_EQ(sum(encode_empty(Kind::kStatus)), "1 bytes, 3421829226");
}

TEST(Messages, ImpossibleFieldsAreRefused) {
  JoinRequest join = example_join();
  join.rank = 4;
  EXPECT_FALSE(decode_join(encode(join)).is_ok());
  join = example_join();
  join.timeout_ms = 0;
  EXPECT_FALSE(decode_join(encode(join)).is_ok());
  join = example_join();
  join.code = static_cast<Code>(99);
  EXPECT_FALSE(decode_join(encode(join)).is_ok());
  join = example_join();
  join.group_class = std::string(32, 'x');
  EXPECT_FALSE(decode_join(encode(join)).is_ok());
  EXPECT_FALSE(decode_welcome(encode(Welcome{"hdt", "n1", 0, 17})).is_ok());
  EXPECT_FALSE(decode_explain(encode(ExplainRequest{std::string(257, 'g'), "reduce", "int8", 1, 0})).is_ok());
  const auto explain = encode(ExplainRequest{"dp", "reduce", "int8", 1, 0});
  for (size_t length = 0; length < explain.size(); ++length) {
    EXPECT_FALSE(decode_explain(std::span(explain).first(length)).is_ok()) << length;
  }
  EXPECT_FALSE(decode_notice(encode(Kind::kFail, GroupNotice{3, static_cast<Code>(99), 2, ""})).is_ok());
}

TEST(Messages, AnotherVersionIsNamed) {
  auto hello = encode(Hello{"hdt"});
  hello[5] = std::byte{77};  // behind the kind and the magic
  const auto decoded = decode_hello(hello);
  ASSERT_EQ(decoded.status().code(), Code::kVersion);
  EXPECT_NE(decoded.status().message().find("77"), std::string::npos);
}

TEST(Messages, DamagedBytesAreRefusedOrMeanWhatTheySay) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  // A text is made plain when it is read.
  JoinRequest without_text = example_join();
  without_text.text.clear();
  const auto original = encode(without_text);
  for (size_t length = 0; length < original.size(); ++length) {
    EXPECT_FALSE(decode_join(std::span(original).first(length)).is_ok()) << length;
  }
  size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto bytes = original;
    for (uint64_t flips = random() % 4 + 1; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto join = decode_join(bytes);
    if (!join.is_ok()) continue;
    ++accepted;
    // The kind is not part of what decode_join returns.
    bytes[0] = original[0];
    EXPECT_EQ(encode(join.value()), bytes);
    EXPECT_LT(join.value().rank, join.value().ranks);
  }
  EXPECT_GT(accepted, 0U);
}

TEST(Codec, LengthsNeverExceedLimitsOrBytes) {
  constexpr size_t kAny = 100;
  const auto bytes = Writer().string("hello", kAny).take();
  std::string text;
  EXPECT_TRUE(Reader(bytes).string(text, 5).complete());
  EXPECT_EQ(text, "hello");
  Reader limited(bytes);
  EXPECT_TRUE(limited.string(text, 4).failed());
  EXPECT_EQ(text, "");
  Reader cut{std::span(bytes).first(6)};
  EXPECT_FALSE(cut.string(text, kAny).complete());
  EXPECT_EQ(text, "");
  Reader rest(bytes);
  (void)rest.get<uint32_t>();
  EXPECT_FALSE(rest.complete());  // something is left over
}

TEST(Codec, WhatIsThereOrNotHasOneForm) {
  std::optional<uint32_t> number;
  bool flag = false;
  const auto read = [&](const std::vector<std::byte>& bytes) {
    return Reader(bytes).optional(number).complete();
  };
  EXPECT_TRUE(read(Writer().optional(std::optional(7U)).take()));
  EXPECT_EQ(number, 7U);
  EXPECT_TRUE(read(Writer().optional(std::optional<uint32_t>()).take()));
  EXPECT_EQ(number, std::nullopt);
  EXPECT_FALSE(read(Writer().flag(false).number(7U).take())) << "a number that is not there";
  EXPECT_FALSE(read(Writer().number(uint8_t{2}, 7U).take())) << "neither there nor not there";
  const auto none = Writer().number_or(9U, std::optional<uint32_t>()).take();
  number = 1;
  EXPECT_TRUE(Reader(none).number_or(9U, number).complete());
  EXPECT_EQ(number, std::nullopt);
  EXPECT_TRUE(Reader(Writer().flag(true).take()).flag(flag).complete() && flag);
  EXPECT_TRUE(Reader(Writer().number(uint8_t{2}).take()).flag(flag).failed() && !flag);
}

TEST(Codec, AListOrKindBeyondItsLimitIsRefused) {
  std::vector<uint32_t> list = {1};
  const auto three = Writer().number(3U, 7U, 8U, 9U).take();
  const auto read = [&](std::span<const std::byte> bytes, uint32_t limit) {
    Reader reader(bytes);
    return reader.list(list, limit, [&](uint32_t& one) { reader.number(one); }).complete();
  };
  EXPECT_TRUE(read(three, 3));
  EXPECT_EQ(list, (std::vector<uint32_t>{7, 8, 9}));
  EXPECT_FALSE(read(three, 2));
  EXPECT_TRUE(list.empty());
  EXPECT_FALSE(read(std::span(three).first(three.size() - 1), 3));
  std::variant<std::monostate> kind;
  EXPECT_TRUE(Reader(Writer().one_of(kind).take()).one_of(kind).complete());
  EXPECT_TRUE(Reader(Writer().number(uint8_t{1}).take()).one_of(kind).failed());
}

// The reason for which a process ends its group goes to the processes of other users.
TEST(Messages, ReasonsAreMadePlain) {
  const auto notice =
      decode_notice(encode(Kind::kFail, GroupNotice{1, Code::kRankLost, 3, "\x1b[2J gone\xff\n"}));
  ASSERT_TRUE(notice.is_ok()) << notice.status().message();
  EXPECT_EQ(notice.value().text, "?[2J gone??");
}

}  // namespace
}  // namespace hdt::ipc
