// registration.h: a piece of memory and its registrations with the engine's backends. It is registered with
// a backend when the first node is to write to it over that backend, and each node is allowed to write
// before it gets the key.
//
// Owner: whoever owns the memory; the engine's thread.
#pragma once

#include <cstddef>
#include <map>

#include "daemon/links/devices.h"
#include "daemon/protocol/node.h"

namespace hdt::daemon {

class Registration {
 public:
  // `fd`: the file of the memory, or -1. The memory and `devices` must outlive this object.
  Registration(Devices& devices, std::byte* data, size_t bytes, int fd)
      : devices_(devices), data_(data), bytes_(bytes), fd_(fd) {}
  // Deregisters the memory.
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // The key with which the node may write there over that backend. Errors are those of the backend.
  Result<transport::RegionKey> key(uint32_t backend, const NodeId& node);
  // The node may not write there any more.
  void revoke(const NodeId& node);

 private:
  Devices& devices_;
  std::byte* const data_;
  const size_t bytes_;
  const int fd_;
  std::map<uint32_t, transport::RegionKey> keys_;  // by backend
};

}  // namespace hdt::daemon
