// network.h: an in-memory network for tests. Devices opened on one FakeNetwork can connect to each other,
// from one thread or several. Time is counted in polls of the receiving device, and all chance comes from one
// seed, so a test of one thread runs the same way every time. Faults are set per sending device address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace hdt::transport::fake {

struct Faults {
  // Payload bytes that a connection delivers per poll of its receiver: a slow NIC. 0: all.
  uint64_t bytes_per_poll = 0;
  // Each frame waits a random 0..max_delay_polls polls of its receiver. Within a connection the order stays;
  // frames of different connections overtake each other.
  uint32_t max_delay_polls = 0;
  // One in so many frames is lost on its way and sent again, as a reliable connection does: it comes some
  // polls later, and all behind it with it. 0: none.
  uint32_t lose_one_in = 0;
  // One in so many writes is reported twice, which no backend may do. 0: none.
  uint32_t duplicate_one_in = 0;
  // The connection breaks when so many frames were delivered in one direction. 0: never.
  uint64_t fail_after_frames = 0;
  // What ends say of how long it may take to learn that something has arrived (Connection::Progress).
  int64_t round_ns = 0;
  // Nothing arrives any more, and no end of the connection tells.
  bool blackhole = false;
  // One in so many writes has a bit flipped when it was placed. 0: none.
  uint32_t corrupt_one_in = 0;
  // Connects from this address are refused.
  bool refuse_connects = false;
};

struct NetworkState;

class FakeNetwork {
 public:
  explicit FakeNetwork(uint64_t seed);
  // A backend whose discover() lists `devices`; open() takes any address. Backends and devices may outlive
  // the network object.
  std::unique_ptr<Backend> make_backend(std::vector<DeviceInfo> devices = {});
  // For what the device at `address` sends; takes effect at once, also for what is under way.
  void set_faults(const std::string& address, const Faults& faults);
  // For all addresses without faults of their own.
  void set_faults(const Faults& faults);
  // Connects to this address are never answered.
  void set_unreachable(const std::string& address);
  // Breaks every connection of the device at `address`, now, as a cable pulled out.
  void cut(const std::string& address);

 private:
  std::shared_ptr<NetworkState> state_;
};

}  // namespace hdt::transport::fake
