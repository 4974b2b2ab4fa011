// network.h: an in-memory network for tests, which keeps the backend contract (transport.h). Devices that are
// opened on one FakeNetwork can connect to each other, from one thread or several. Time is counted in polls
// of the receiving device, and all randomness comes from one seed, so a test with one thread runs in the same
// way every time. Faults are set per address of the sending device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace hdt::transport::fake {

// The faults of the data that one address sends. The default is a network without faults. "One in n"
// is a chance of 1/n for each frame or write, drawn from the seed.
struct Faults {
  // The payload bytes that a connection delivers per poll of its receiver, as a slow NIC does. 0: no limit.
  uint64_t bytes_per_poll = 0;
  // Each frame waits for a random number of its receiver's polls, 0 to max_delay_polls. The order within a
  // connection stays; frames of different connections overtake each other.
  uint32_t max_delay_polls = 0;
  // One in n frames is lost and sent again, as on a reliable connection: it arrives 10 polls later, and so
  // does all behind it. 0: none.
  uint32_t lose_one_in = 0;
  // One in n writes is reported twice, which no backend may do: tests of what a link does then. 0: none.
  uint32_t duplicate_one_in = 0;
  // The connection breaks when this number of frames was delivered in one direction. 0: never.
  uint64_t fail_after_frames = 0;
  // The round_ns that Connection::progress() returns at the receiving end (Connection::Progress).
  int64_t round_ns = 0;
  // Nothing arrives any more, and neither end of the connection reports it.
  bool blackhole = false;
  // One in n writes has one bit flipped after it was placed. 0: none.
  uint32_t corrupt_one_in = 0;
  // Connects from this address are refused.
  bool refuse_connects = false;
};

struct NetworkState;

// The handle that a test holds. Its functions may be called on any thread: all state is under one mutex.
class FakeNetwork {
 public:
  explicit FakeNetwork(uint64_t seed);
  // Makes a backend whose discover() lists `devices`; its open() takes any address. Backends and devices may
  // outlive the network object.
  std::unique_ptr<Backend> make_backend(std::vector<DeviceInfo> devices = {});
  // Sets the faults of what the device at `address` (without a port) sends. They take effect at once, except
  // that delays and losses are drawn when a frame is sent.
  void set_faults(const std::string& address, const Faults& faults);
  // Sets the faults of all addresses that have none of their own.
  void set_faults(const Faults& faults);
  // Connects to this address fail as after their timeout. The failure is reported at once, without a wait.
  void set_unreachable(const std::string& address);
  // Breaks every connection of the device at `address` now, as if its cable had been pulled out. Both ends
  // report it.
  void cut(const std::string& address);

 private:
  std::shared_ptr<NetworkState> state_;
};

}  // namespace hdt::transport::fake
