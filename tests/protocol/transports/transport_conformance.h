// transport_conformance.h: what transports/transport.h promises, as tests that run unchanged over every
// backend. A backend joins with one file: INSTANTIATE_TEST_SUITE_P(Name, TransportConformance,
// Values(&make_my_world)).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/transports/random_bytes.h"
#include "transports/transport.h"

namespace hdt::transport {

// Far beyond what a connection takes on a busy machine: no test of time.
inline constexpr int64_t kConnectMs = 60'000;

// As whom both ends of a test's connections are admitted, and somebody else.
inline constexpr PeerName kPeer{{std::byte{1}}};
inline constexpr PeerName kOtherPeer{{std::byte{2}}};

// The place a backend is tested in.
class World {
 public:
  virtual ~World() = default;
  virtual Backend& backend() = 0;
  // A local device; different indices are different addresses.
  virtual DeviceInfo device(int index) = 0;
  // A well-formed address at which nobody listens.
  virtual std::string refusing_address() = 0;
  // One that never answers; called once. "": none is known, what needs it is skipped.
  virtual std::string silent_address() = 0;
  // Whether the backend itself finds out who writes, before anything is placed. An adapter knows keys, not
  // peers.
  virtual bool knows_writers() { return true; }
};

// A completion as the tests look at it: message bytes copied.
struct Event {
  Completion completion;
  std::vector<std::byte> message;
};

// A device with everything it has reported.
struct Endpoint {
  std::unique_ptr<Device> device;
  std::string address;
  std::vector<Event> events;

  void poll();
  // Registers memory and grants it to kPeer.
  Result<RegionKey> enlist(void* base, size_t bytes) const;
  size_t count(Completion::Kind kind, const Connection* connection = nullptr) const;
  // Events of that kind, in order of arrival.
  std::vector<const Event*> all(Completion::Kind kind, const Connection* connection = nullptr) const;
  const Event* closed(const Connection* connection) const;
};

struct Pair {
  Connection* client = nullptr;
  Connection* server = nullptr;
};

class TransportConformance : public testing::TestWithParam<std::function<std::unique_ptr<World>()>> {
 protected:
  void SetUp() override;
  // Polls both ends until `done`. False when the time limit passed first.
  bool run_until(const std::function<bool()>& done);
  bool run_until(std::vector<Endpoint*> polled, const std::function<bool()>& done);
  // A connection from a_ to b_, both ends of which are there, and strangers to each other; throws with the
  // reason when none comes about.
  Pair meet();
  // The same, admitted at both ends as kPeer.
  Pair connect();
  // `stop`, in the middle of a write to the region: its connection ends, and no byte is placed after it
  // returned.
  void expect_stops_a_write(const std::function<void(const RegionKey&)>& stop);

  std::unique_ptr<World> world_;
  Endpoint a_;
  Endpoint b_;  // listens
};

class TransportStrangers : public TransportConformance {};

// Seed of this run: HDT_TEST_SEED or a fixed one; printed.
uint64_t test_seed();
Immediate immediate_of(uint64_t value);
uint64_t value_of(const Immediate& immediate);

}  // namespace hdt::transport
