// state.h: what the devices of one FakeNetwork share, and the frames between them. Everything in this file is
// guarded by one mutex, NetworkState::mutex, except for a Pipe's `from`, which does not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "transports/fake/network.h"
#include "transports/support/region_table.h"

namespace hdt::transport::fake {

class FakeConnection;
class FakeDevice;

// A send or a write on its way. A frame is in its pipe from the sender's call until the receiver's poll has
// delivered it.
struct Frame {
  bool is_write = false;
  std::vector<std::byte> copy;      // of a message
  const std::byte* data = nullptr;  // of a write: the sender's memory, read when the frame is delivered
  size_t bytes = 0;                 // length of the message or the payload
  uint64_t region = 0;              // of a write, as offset and immediate
  uint64_t offset = 0;
  Immediate immediate{};
  uint64_t token = 0;  // for kSent
  uint32_t delay = 0;  // polls of the receiver still to wait
  size_t placed = 0;   // payload bytes placed so far; a slow connection places a part per poll
};

// One direction of a connection. Both ends share it; each end has one pipe in and one out.
struct Pipe {
  std::string from;                    // the sender's device address: its faults apply
  FakeConnection* sender = nullptr;    // while it is not finished
  FakeConnection* receiver = nullptr;  // while it is not finished
  std::deque<Frame> frames;            // not delivered, in order
  size_t writes = 0;                   // how many of them are writes
  size_t write_bytes = 0;              // payload bytes of those
  uint64_t delivered = 0;              // frames, over the pipe's life
  uint64_t placed = 0;                 // payload bytes, over the pipe's life
  bool closed = false;                 // the sending end has finished; nothing follows
  Status close_reason;                 // what the receiver reports then, after the frames
};

// The state that the devices of one backend share. A region may be written through any of them, so that any
// rail of a link can carry any fragment.
struct Domain {
  RegionGrants regions;
  std::set<FakeDevice*> devices;
};

// The network: who listens where, and what goes wrong.
struct NetworkState {
  explicit NetworkState(uint64_t seed) : random(seed) {}

  const Faults& faults_of(const std::string& address) const {
    const auto found = faults.find(address);
    return found == faults.end() ? default_faults : found->second;
  }

  std::mutex mutex;
  std::mt19937_64 random;                        // all randomness, keys included
  Faults default_faults;                         // of addresses that are not in `faults`
  std::map<std::string, Faults> faults;          // by the sender's address without a port
  std::set<std::string> unreachable;             // addresses without a port
  std::map<std::string, FakeDevice*> listeners;  // by "address:port"
  std::set<FakeDevice*> devices;                 // of all backends of this network
  uint16_t next_port = 40000;                    // for listeners and for connections
};

}  // namespace hdt::transport::fake
