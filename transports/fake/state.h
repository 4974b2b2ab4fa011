// state.h: what the devices of one FakeNetwork share, and the frames between them. Everything is guarded by
// one mutex.
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

struct Frame {
  bool is_write = false;
  std::vector<std::byte> copy;      // of a message
  const std::byte* data = nullptr;  // of a write: the sender's memory, read when it is delivered
  size_t bytes = 0;
  uint64_t region = 0;
  uint64_t offset = 0;
  Immediate immediate{};
  uint64_t token = 0;
  uint32_t delay = 0;  // polls still to wait
  size_t placed = 0;   // bytes delivered so far
};

// One direction of a connection.
struct Pipe {
  std::string from;                    // the sender's device address: its faults apply
  FakeConnection* sender = nullptr;    // while it is not finished
  FakeConnection* receiver = nullptr;  // likewise
  std::deque<Frame> frames;
  size_t writes = 0;
  size_t write_bytes = 0;
  uint64_t delivered = 0;
  uint64_t placed = 0;  // payload bytes
  bool closed = false;  // the sending end is gone
  Status close_reason;
};

// What the devices of one backend share: a region may be written through any of them.
struct Domain {
  RegionGrants regions;
  std::set<FakeDevice*> devices;
};

struct NetworkState {
  explicit NetworkState(uint64_t seed) : random(seed) {}

  const Faults& faults_of(const std::string& address) const {
    const auto found = faults.find(address);
    return found == faults.end() ? default_faults : found->second;
  }

  std::mutex mutex;
  std::mt19937_64 random;
  Faults default_faults;
  std::map<std::string, Faults> faults;
  std::set<std::string> unreachable;
  std::map<std::string, FakeDevice*> listeners;  // by "address:port"
  std::set<FakeDevice*> devices;
  uint16_t next_port = 40000;
};

}  // namespace hdt::transport::fake
