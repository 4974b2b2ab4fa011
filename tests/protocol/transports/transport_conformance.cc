// transport_conformance.cc: the fixture; see transport_conformance.h.
#include "tests/protocol/transports/transport_conformance.h"

#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

namespace hdt::transport {

namespace {
constexpr auto kTimeLimit = std::chrono::seconds(60);
constexpr int kSleepMs = 100;
}  // namespace

void Endpoint::poll() {
  std::vector<Completion> completions;
  device->poll(completions);
  for (Completion& completion : completions) {
    Event& event = events.emplace_back();
    event.message.assign(completion.message.begin(), completion.message.end());
    event.completion = std::move(completion);
    event.completion.message = {};
  }
}

Result<RegionKey> Endpoint::enlist(void* base, size_t bytes) const {
  auto key = device->register_memory(base, bytes, -1);
  if (!key.is_ok()) return key;
  HDT_RETURN_IF_ERROR(device->grant(key.value(), kPeer));
  return key;
}

std::vector<const Event*> Endpoint::all(Completion::Kind kind, const Connection* connection) const {
  std::vector<const Event*> found;
  for (const Event& event : events) {
    if (event.completion.kind != kind) continue;
    if (connection == nullptr || event.completion.connection == connection) found.push_back(&event);
  }
  return found;
}

size_t Endpoint::count(Completion::Kind kind, const Connection* connection) const {
  return all(kind, connection).size();
}

const Event* Endpoint::closed(const Connection* connection) const {
  const auto found = all(Completion::Kind::kClosed, connection);
  return found.empty() ? nullptr : found.front();
}

void TransportConformance::SetUp() {
  world_ = GetParam()();
  world_->backend().limit_strangers({.all = 200, .per_address = 200});  // many connections at once are tried
  for (Endpoint* end : {&a_, &b_}) {
    auto opened = world_->backend().open(world_->device(end == &a_ ? 0 : 1));
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    end->device = opened.take();
  }
  auto address = b_.device->listen(0);
  ASSERT_TRUE(address.is_ok()) << address.status().to_string();
  b_.address = address.value();
}

bool TransportConformance::run_until(const std::function<bool()>& done) {
  return run_until({&a_, &b_}, done);
}

bool TransportConformance::run_until(std::vector<Endpoint*> polled, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  for (Endpoint* end : polled) end->poll();
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    // Sleeps on the event descriptors, as the engine does: what they fail to announce makes the test fail.
    std::vector<pollfd> waits;
    for (Endpoint* end : polled) waits.push_back({end->device->event_fd(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), kSleepMs);
    for (size_t i = 0; i < polled.size(); ++i) {
      if ((waits[i].revents & POLLIN) != 0) polled[i]->poll();
    }
  }
  return true;
}

Pair TransportConformance::meet() {
  const size_t accepted = b_.count(Completion::Kind::kAccepted);
  auto connection = a_.device->connect(b_.address, kConnectMs);
  // A test goes on with both ends or ends here: GoogleTest reports what is thrown as the test's failure.
  if (!connection.is_ok())
    throw std::runtime_error("cannot connect to " + b_.address + ": " + connection.status().to_string());
  Pair pair;
  pair.client = connection.value();
  const auto both = [&] {
    return a_.count(Completion::Kind::kConnected, pair.client) == 1 &&
           b_.count(Completion::Kind::kAccepted) == accepted + 1;
  };
  const bool ended = run_until([&] { return both() || a_.closed(pair.client) != nullptr; });
  if (const Event* closed = a_.closed(pair.client); closed != nullptr)
    throw std::runtime_error("no connection to " + b_.address + ": " + closed->completion.error.to_string());
  if (!ended) throw std::runtime_error("no connection to " + b_.address + " within the test's time limit");
  pair.server = b_.all(Completion::Kind::kAccepted).back()->completion.connection;
  return pair;
}

Pair TransportConformance::connect() {
  const Pair pair = meet();
  for (Connection* end : {pair.client, pair.server}) {
    if (const Status admitted = end->admit(kPeer); !admitted.is_ok())
      throw std::runtime_error("cannot admit a peer: " + admitted.to_string());
  }
  const bool ready = run_until([&] {
    return a_.count(Completion::Kind::kReady, pair.client) == 1 &&
           b_.count(Completion::Kind::kReady, pair.server) == 1;
  });
  if (!ready)
    throw std::runtime_error("a connection was admitted and is not ready within the test's time limit");
  return pair;
}

uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("HDT_TEST_SEED");
    const uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 20240611;
    std::cout << "seed " << value << " (HDT_TEST_SEED)\n";
    return value;
  }();
  return seed;
}

Immediate immediate_of(uint64_t value) {
  Immediate immediate{};
  std::memcpy(immediate.data(), &value, sizeof value);
  return immediate;
}

uint64_t value_of(const Immediate& immediate) {
  uint64_t value = 0;
  std::memcpy(&value, immediate.data(), sizeof value);
  return value;
}

}  // namespace hdt::transport
