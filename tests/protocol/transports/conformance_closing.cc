// conformance_closing.cc: how connections begin and end, and what is reported when.
#include <poll.h>
#include <chrono>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

using Kind = Completion::Kind;

TEST_P(TransportConformance, AddressesOfBothEndsMatch) {
  const Pair pair = connect();
  EXPECT_EQ(pair.client->remote_address(), b_.address);
  EXPECT_EQ(pair.client->local_address(), pair.server->remote_address());
  const std::string local = pair.client->local_address();
  const std::string host = world_->device(0).address;
  EXPECT_TRUE(local.starts_with(host) || local.starts_with("[" + host + "]")) << local << " of " << host;
}

TEST_P(TransportConformance, RefusedConnectIsReported) {
  auto connection = a_.device->connect(world_->refusing_address(), 5000);
  ASSERT_TRUE(connection.is_ok()) << connection.status().to_string();
  ASSERT_TRUE(run_until([&] { return a_.closed(connection.value()) != nullptr; }));
  EXPECT_EQ(a_.closed(connection.value())->completion.error.code(), Code::kNoDaemon);
  EXPECT_EQ(a_.count(Kind::kConnected), 0u);
  a_.device->release(connection.value());
}

TEST_P(TransportConformance, UnansweredConnectEndsByItsDeadline) {
  const std::string silent = world_->silent_address();
  if (silent.empty()) GTEST_SKIP() << "no address is known that never answers";
  auto connection = a_.device->connect(silent, 200);
  ASSERT_TRUE(connection.is_ok()) << "silent address '" << silent << "': " << connection.status().to_string();
  ASSERT_TRUE(run_until([&] { return a_.closed(connection.value()) != nullptr; }));
  EXPECT_NE(a_.closed(connection.value())->completion.error.message().find("200 ms"), std::string::npos)
      << a_.closed(connection.value())->completion.error.message();
}

// Unlike close(): the peer can tell that this was no end in order.
TEST_P(TransportConformance, AbandonedConnectionEndsWithoutAGoodbye) {
  const Pair pair = connect();
  ASSERT_TRUE(pair.client->send(random_bytes(100, 1), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage, pair.server) == 1; }));
  ASSERT_TRUE(run_until([&] { return !pair.client->progress().outstanding; }));
  const uint64_t moved = pair.client->progress().moved;
  ASSERT_TRUE(pair.server->send(random_bytes(100, 2), 0).is_ok());
  ASSERT_TRUE(run_until([&] { return a_.count(Kind::kMessage, pair.client) == 1; }));
  EXPECT_NE(pair.client->progress().moved, moved);
  pair.client->abandon();
  ASSERT_TRUE(
      run_until([&] { return a_.closed(pair.client) != nullptr && b_.closed(pair.server) != nullptr; }));
  EXPECT_FALSE(b_.closed(pair.server)->completion.error.is_ok());
}

TEST_P(TransportConformance, ManyConnectionsAtOnce) {
  constexpr size_t kConnections = 100;
  std::vector<Connection*> clients;
  for (size_t i = 0; i < kConnections; ++i) {
    auto connection = a_.device->connect(b_.address, kConnectMs);
    ASSERT_TRUE(connection.is_ok()) << connection.status().to_string();
    clients.push_back(connection.value());
  }
  ASSERT_TRUE(run_until([&] {
    return a_.count(Kind::kConnected) == kConnections && b_.count(Kind::kAccepted) == kConnections;
  }));
  for (size_t i = 0; i < kConnections; ++i) {
    ASSERT_TRUE(clients[i]->send(random_bytes(1 + i, i), 0).is_ok());
  }
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage) == kConnections; }));
  for (Connection* client : clients) client->close();
  ASSERT_TRUE(run_until(
      [&] { return a_.count(Kind::kClosed) == kConnections && b_.count(Kind::kClosed) == kConnections; }));
  for (const Event* event : b_.all(Kind::kClosed)) {
    EXPECT_TRUE(event->completion.error.is_ok()) << event->completion.error.message();
    b_.device->release(event->completion.connection);
  }
  for (Connection* client : clients) a_.device->release(client);
}

TEST_P(TransportConformance, WhatWasSentBeforeCloseArrives) {
  const Pair pair = connect();
  // Input that the client never reads must not cost the server what the client has sent.
  ASSERT_TRUE(pair.server->send(random_bytes(1000, 1), 0).is_ok());
  ASSERT_TRUE(pair.client->send(random_bytes(1000, 2), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return a_.count(Kind::kSent) == 1; }));
  pair.client->close();
  ASSERT_TRUE(
      run_until([&] { return a_.closed(pair.client) != nullptr && b_.closed(pair.server) != nullptr; }));
  EXPECT_TRUE(a_.closed(pair.client)->completion.error.is_ok());
  EXPECT_TRUE(b_.closed(pair.server)->completion.error.is_ok())
      << b_.closed(pair.server)->completion.error.message();
  ASSERT_EQ(b_.count(Kind::kMessage), 1u);
  EXPECT_EQ(b_.all(Kind::kMessage)[0]->message, random_bytes(1000, 2));
}

// Every send and write is reported, once, before kClosed, and nothing after it.
void expect_all_reported(const Endpoint& end, const Connection* connection, uint64_t posted) {
  std::vector<uint64_t> tokens;
  bool closed = false;
  bool failed = false;
  for (const Event& event : end.events) {
    if (event.completion.connection != connection) continue;
    EXPECT_FALSE(closed) << "reported after kClosed";
    if (event.completion.kind == Kind::kClosed) closed = true;
    if (event.completion.kind != Kind::kSent) continue;
    tokens.push_back(event.completion.token);
    EXPECT_FALSE(failed && event.completion.error.is_ok()) << "success after a failure";
    failed = failed || !event.completion.error.is_ok();
  }
  EXPECT_TRUE(closed);
  EXPECT_TRUE(failed) << "the queue was to be given up";
  ASSERT_EQ(tokens.size(), posted);
  for (uint64_t i = 0; i < posted; ++i) EXPECT_EQ(tokens[i], i + 1);
}

TEST_P(TransportConformance, CloseInTheMiddleOfWritesReportsThemFirst) {
  for (const bool client_closes : {true, false}) {
    SCOPED_TRACE(client_closes ? "the writer closes" : "the reader closes");
    const Pair pair = connect();
    const std::vector<std::byte> source = random_bytes(size_t{16} << 20, test_seed());
    std::vector<std::byte> region(source.size());
    const auto key = b_.enlist(region.data(), region.size());
    ASSERT_TRUE(key.is_ok());
    constexpr uint64_t kPosted = 8;
    for (uint64_t i = 0; i < kPosted; ++i) {
      ASSERT_TRUE(
          pair.client->write(source.data(), source.size(), key.value(), 0, immediate_of(i), i + 1).is_ok());
    }
    ASSERT_TRUE(run_until([&] { return region[0] == source[0]; }));
    (client_closes ? pair.client : pair.server)->close();
    ASSERT_TRUE(
        run_until([&] { return a_.closed(pair.client) != nullptr && b_.closed(pair.server) != nullptr; }));
    expect_all_reported(a_, pair.client, kPosted);
    EXPECT_FALSE(pair.client->send(std::vector<std::byte>(1), 1).is_ok());
    a_.device->release(pair.client);
    b_.device->release(pair.server);
    a_.events.clear();
    b_.events.clear();
    b_.device->deregister_memory(key.value());
  }
}

TEST_P(TransportConformance, VanishedDeviceClosesItsConnections) {
  const Pair pair = connect();
  b_.device.reset();
  ASSERT_TRUE(run_until({&a_}, [&] { return a_.closed(pair.client) != nullptr; }));
  EXPECT_EQ(a_.closed(pair.client)->completion.error.code(), Code::kLink) << "no goodbye was said";
}

TEST_P(TransportConformance, NothingToDoIsNotAnnounced) {
  const Pair pair = connect();
  ASSERT_TRUE(pair.client->send(random_bytes(100, 1), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage) == 1 && a_.count(Kind::kSent) == 1; }));
  for (Endpoint* end : {&a_, &b_}) {
    end->poll();
    pollfd wait{end->device->event_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&wait, 1, 0), 0) << "an idle device keeps its owner awake";
  }
}

}  // namespace hdt::transport
