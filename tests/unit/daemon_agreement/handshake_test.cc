// handshake_test.cc: what two daemons prove to each other.
#include "daemon/handshake.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace hdt::daemon {
namespace {

const std::string kKey = "a key of the cluster";

Handshake dialer(const std::string& key) {
  return {Handshake::Role::kDialer, PeerHello{Purpose::kRail, NodeId{}, "d", 1, 3, 2}, key};
}
Handshake acceptor(const std::string& key) {
  return {Handshake::Role::kAcceptor, PeerHello{Purpose::kRail, NodeId{}, "a", 1, 0, 0}, key};
}

// Carries messages between the two until both are done or one refuses; returns the refusal.
Status converse(Handshake& a, Handshake& b) {
  std::vector<std::vector<std::byte>> to_b = a.start();
  std::vector<std::vector<std::byte>> to_a = b.start();
  for (int round = 0; round < 10 && !(to_a.empty() && to_b.empty()); ++round) {
    std::vector<std::vector<std::byte>> next_a, next_b;
    for (const auto& message : to_b) {
      auto answer = b.on_message(message);
      if (!answer.is_ok()) return answer.status();
      for (auto& reply : answer.value()) next_a.push_back(reply);
    }
    for (const auto& message : to_a) {
      auto answer = a.on_message(message);
      if (!answer.is_ok()) return answer.status();
      for (auto& reply : answer.value()) next_b.push_back(reply);
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
    EXPECT_EQ(a.peer().name, "a");
  }
}

TEST(HandshakeTest, DifferentOrMissingKeysAreRefused) {
  for (const auto& [first, second] :
       {std::pair{kKey, std::string("another key, as long")}, {kKey, std::string()}, {std::string(), kKey}}) {
    Handshake a = dialer(first), b = acceptor(second);
    EXPECT_EQ(converse(a, b).code(), Code::kConfig);
    EXPECT_FALSE(a.done() && b.done());
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

TEST(ClusterKey, IsReadWithoutWhiteSpaceAndMustBeLongEnough) {
  const auto path = std::filesystem::temp_directory_path() / ("hdt-key-" + std::to_string(getpid()));
  std::ofstream(path) << kKey << "\n";
  const auto key = load_cluster_key(path);
  ASSERT_TRUE(key.is_ok());
  EXPECT_EQ(key.value(), kKey);
  std::ofstream(path) << "short\n";
  EXPECT_EQ(load_cluster_key(path).status().code(), Code::kConfig);
  std::filesystem::remove(path);
  EXPECT_EQ(load_cluster_key(path).status().code(), Code::kConfig);
  EXPECT_EQ(load_cluster_key("").value(), "");
}

}  // namespace
}  // namespace hdt::daemon
