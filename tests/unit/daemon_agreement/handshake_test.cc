// handshake_test.cc: what two daemons prove to each other, and that nothing of it can be changed, repeated or
// borrowed.
#include "daemon/protocol/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/codec.h"
#include "base/hmac.h"

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;
using Messages = std::vector<std::vector<std::byte>>;

const std::string kKey = "a key of the cluster";

std::shared_ptr<Trust> trust_with(const std::string& key) { return Trust::open({key, "", ""}).take(); }

Handshake dialer(const std::shared_ptr<Trust>& trust, const std::string& name = "d") {
  return {Handshake::Role::kDialer, PeerHello{Purpose::kRail, {}, name, 1, 3, 2, "dp"}, trust};
}
Handshake acceptor(const std::shared_ptr<Trust>& trust, const std::string& name = "a") {
  return {Handshake::Role::kAcceptor, PeerHello{Purpose::kRail, {}, name, 1, 0, 0}, trust};
}
Handshake dialer(const std::string& key) { return dialer(trust_with(key)); }
Handshake acceptor(const std::string& key) { return acceptor(trust_with(key)); }

using Change = std::function<void(bool to_acceptor, size_t number, std::vector<std::byte>& message)>;

// Carries messages between the two until both are done or one refuses; returns the refusal.
Status converse(Handshake& a, Handshake& b, const Change& change = nullptr) {
  Messages to_b = a.start();
  Messages to_a = b.start();
  size_t number = 0;
  for (int round = 0; round < 10 && !(to_a.empty() && to_b.empty()); ++round) {
    Messages next_a, next_b;
    for (const bool to_acceptor : {true, false}) {
      for (auto& message : to_acceptor ? to_b : to_a) {
        if (change) change(to_acceptor, number++, message);
        auto answer = (to_acceptor ? b : a).on_message(message);
        if (!answer.is_ok()) return answer.status();
        for (auto& reply : answer.value()) (to_acceptor ? next_a : next_b).push_back(reply);
      }
    }
    to_a = next_a;
    to_b = next_b;
  }
  return Status::ok();
}

TEST(HandshakeTest, EqualKeysOrNone) {
  for (const std::string& key : {kKey, std::string()}) {
    Handshake a = dialer(key), b = acceptor(key);
    EXPECT_TRUE(converse(a, b).is_ok());
    EXPECT_TRUE(a.done());
    EXPECT_TRUE(b.done());
    EXPECT_EQ(b.peer().name, "d");
    EXPECT_EQ(b.peer().link, 3U);
    EXPECT_EQ(b.peer().rail, 2U);
    EXPECT_EQ(b.peer().group_class, "dp");
    EXPECT_EQ(a.peer().name, "a");
  }
}

// Hellos of all versions begin alike, and a change of what follows raises kPeerVersion.
TEST(HandshakeTest, TheBytesOfThisVersion) {
  const auto trust = trust_with(kKey);
  const auto hello = dialer(trust).start().front();
  std::string head = "\x01PTDH";
  head += static_cast<char>(kPeerVersion) + std::string(3, 0) + "\x02";
  std::string rest = std::string("\x01\0\0\0d\x01\0\0\0\x03\0\0\0\x02\0\0\0\x02\0\0\0dp", 23);
  const auto append = [](std::string& text, const auto& bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  append(head, trust->node().bytes);
  append(rest, trust->key().public_key());
  append(rest, trust->start());
  rest += static_cast<char>(trust->lasting());
  std::string sent;
  append(sent, hello);
  constexpr size_t kNonceBytes = 32;
  ASSERT_GT(sent.size(), kNonceBytes);
  EXPECT_EQ(sent.substr(0, sent.size() - kNonceBytes), head + rest);
}

TEST(HandshakeTest, DifferentOrMissingKeysAreRefusedWithTheReason) {
  for (const auto& [first, second, why] :
       {std::tuple{kKey, std::string("another key, as long"), "node a does not know the cluster key"},
        {kKey, std::string(), "node a has no cluster key and this one has one"},
        {std::string(), kKey, "node a has a cluster key and this one has none"}}) {
    Handshake a = dialer(first), b = acceptor(second);
    const Status refused = converse(a, b);
    EXPECT_EQ(refused.code(), Code::kConfig);
    EXPECT_THAT(refused.message(), HasSubstr(why));
    EXPECT_FALSE(a.done() && b.done());
  }
}

// Somebody in between changes one bit of one message: there are four, and each byte of each counts.
TEST(HandshakeTest, NoBitOfAnyMessageCanBeChanged) {
  const auto ours = trust_with(kKey), theirs = trust_with(kKey);
  std::vector<size_t> sizes;
  Handshake first = dialer(ours), second = acceptor(theirs);
  ASSERT_TRUE(
      converse(first, second, [&](bool, size_t, auto& message) { sizes.push_back(message.size()); }).is_ok());
  ASSERT_EQ(sizes.size(), 4U);
  for (size_t which = 0; which < sizes.size(); ++which) {
    for (size_t at = 0; at < sizes[which]; ++at) {
      Handshake a = dialer(ours), b = acceptor(theirs);
      const Status refused = converse(a, b, [&](bool, size_t number, auto& message) {
        if (number == which) message[at] ^= std::byte{1};
      });
      EXPECT_FALSE(refused.is_ok()) << "message " << which << ", byte " << at;
      EXPECT_FALSE(a.done() && b.done());
    }
  }
}

// An attacker without the key sends a daemon's own messages back to it.
TEST(HandshakeTest, AReflectedProofIsRefused) {
  Handshake a = dialer(kKey);
  const auto hello = a.start().front();
  const auto proof = a.on_message(hello);
  ASSERT_TRUE(proof.is_ok());
  EXPECT_FALSE(a.on_message(proof.value().front()).is_ok());
}

// A dialer's messages are worth nothing on another connection, nor are an acceptor's.
TEST(HandshakeTest, ARecordedConversationCannotBeRepeated) {
  const auto ours = trust_with(kKey), theirs = trust_with(kKey);
  Messages said_by_dialer, said_by_acceptor;
  Handshake a = dialer(ours), b = acceptor(theirs);
  ASSERT_TRUE(converse(a, b, [&](bool to_acceptor, size_t, auto& message) {
                (to_acceptor ? said_by_dialer : said_by_acceptor).push_back(message);
              }).is_ok());
  Handshake again = acceptor(theirs);
  ASSERT_TRUE(again.on_message(said_by_dialer.at(0)).is_ok());
  EXPECT_THAT(again.on_message(said_by_dialer.at(1)).status().message(),
              HasSubstr("does not know the cluster key"));
  Handshake anew = dialer(ours);
  ASSERT_TRUE(anew.on_message(said_by_acceptor.at(0)).is_ok());
  EXPECT_THAT(anew.on_message(said_by_acceptor.at(1)).status().message(),
              HasSubstr("does not know the cluster key"));
}

// A proof that was made on one channel is worth nothing on another one.
TEST(HandshakeTest, TheChannelIsBound) {
  const auto ours = trust_with(kKey), theirs = trust_with(kKey);
  ChannelBinding one{}, other{};
  one[0] = std::byte{1};
  other[31] = std::byte{1};
  for (const auto& [near, far, fits] :
       {std::tuple{one, one, true}, {one, other, false}, {one, ChannelBinding{}, false}}) {
    Handshake a = dialer(ours), b = acceptor(theirs);
    a.bind(near);
    b.bind(far);
    EXPECT_EQ(converse(a, b).is_ok(), fits);
  }
}

// All that node "thief" has is its own files: the cluster key, and a node key of its own.
TEST(HandshakeTest, ANodeCannotPoseAsAnotherOne) {
  const auto victim = trust_with(kKey), thief = trust_with(kKey), third = trust_with(kKey);
  ASSERT_TRUE(third->check("victim", victim->key().public_key(), true).is_ok());
  Handshake honest = dialer(victim, "victim"), meets = acceptor(third);
  EXPECT_TRUE(converse(honest, meets).is_ok());
  Handshake posing = dialer(thief, "victim"), meets_it = acceptor(third);
  const Status refused = converse(posing, meets_it);
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_THAT(refused.message(), HasSubstr("node victim has another node key"));
  EXPECT_THAT(refused.message(), HasSubstr("than before"));

  // With the victim's Hello, of which the node id, the key and the nonces are public, it lacks the victim's
  // signature.
  for (const auto& [signer, passes] : {std::pair{thief, false}, {victim, true}}) {
    const auto hello = dialer(victim, "victim").start().front();
    Handshake meets_that = acceptor(third);
    const auto answer = meets_that.on_message(hello);
    ASSERT_TRUE(answer.is_ok());
    const auto& theirs = answer.value().front();
    const auto text = Writer()
                          .bytes("HDT handshake")
                          .number(Handshake::Role::kDialer)
                          .bytes(ChannelBinding{})
                          .number(static_cast<uint32_t>(hello.size()))
                          .bytes(hello)
                          .number(static_cast<uint32_t>(theirs.size()))
                          .bytes(theirs)
                          .take();
    const std::span octets(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    const std::span key(reinterpret_cast<const uint8_t*>(kKey.data()), kKey.size());
    constexpr uint8_t kProofKind = 2;
    const auto proof = Writer()
                           .number(kProofKind)
                           .bytes(hmac_sha256(key, octets).value())
                           .bytes(signer->key().sign(octets).value())
                           .take();
    const auto told = meets_that.on_message(proof);
    EXPECT_EQ(told.is_ok(), passes);
    if (!passes) {
      EXPECT_THAT(told.status().message(),
                  HasSubstr("does not have the private half of the node key that it sent"));
    }
  }
}

TEST(HandshakeTest, ANodeIdBelongsToItsNodeKey) {
  const auto victim = trust_with(kKey), thief = trust_with(kKey);
  auto hello = dialer(thief).start().front();
  constexpr size_t kIdAt = 1 + 4 + 4 + 1;  // kind, magic, version, purpose
  std::copy(victim->node().bytes.begin(), victim->node().bytes.end(), hello.begin() + kIdAt);
  EXPECT_THAT(acceptor(kKey).on_message(hello).status().message(),
              HasSubstr("a node id that is not its own"));
  EXPECT_NE(trust_with(kKey)->node(), trust_with(kKey)->node());
}

TEST(HandshakeTest, NamesArePlainText) {
  for (const std::string name : {"", "a b", "a\n", "a\x1b[2J", "\xc3\xa9", "a\x7f"}) {
    const auto trust = trust_with("");
    EXPECT_THAT(acceptor("").on_message(dialer(trust, name).start().front()).status().message(),
                HasSubstr("plain printable text"));
  }
}

TEST(HandshakeTest, GarbageAndWrongOrderAreRefused) {
  const auto hello = dialer("").start().front();
  for (size_t length = 0; length < hello.size(); ++length) {
    Handshake b = acceptor("");
    EXPECT_FALSE(b.on_message(std::span(hello).first(length)).is_ok()) << length;
  }
  auto other_version = hello;
  other_version[5] = std::byte{kPeerVersion + 1};
  Handshake b = acceptor("");
  EXPECT_EQ(b.on_message(other_version).status().code(), Code::kVersion);
  Handshake c = acceptor("");
  ASSERT_TRUE(c.on_message(hello).is_ok());
  EXPECT_FALSE(c.on_message(hello).is_ok());
}

}  // namespace
}  // namespace hdt::daemon
