// channel.h: what a library with tagged messages (libfabric, UCX) must give to carry one connection: a data
// path of its own, to one peer, on which messages find their place by tag. A thin seam: everything that can
// go wrong above it is driven in tests without the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::transport::tagged {

// An operation that is over: its memory is the caller's again.
struct Finished {
  uint64_t id = 0;
  size_t bytes = 0;  // of a receive: how many have arrived
  Status error;
};

class Channel {
 public:
  // Drops what is under way. When it returns no memory given to it is touched any more, neither read nor
  // written.
  virtual ~Channel() = default;
  // To be told to the peer's channel.
  virtual std::vector<std::byte> address() const = 0;
  // Starts nothing that must be waited for; an address that nobody has shows as failed sends, or never.
  virtual Status connect(std::span<const std::byte> peer) = 0;
  // False: no room now, try again after poll(). True: started, and reported by poll() with `id`. Each tag is
  // used once a direction, by both sides with the same length at most.
  virtual Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) = 0;
  virtual Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) = 0;
  // Moves what can be moved, appends what is over. A failure is one of the whole channel.
  virtual Status poll(std::vector<Finished>& finished) = 0;
  // Readable when poll() has something to do, provided that arm() said so. -1: the library has none; then the
  // connection polls while anything is under way and rings its peer over the control socket.
  virtual int fd() const = 0;
  // True: nothing to do now, and fd() tells when there is. False: poll again first.
  virtual bool arm() = 0;
};

// A library opened on one NIC.
class Fabric {
 public:
  virtual ~Fabric() = default;
  // What two ends must have in common: "ofi tcp;ofi_rxm".
  virtual const std::string& protocol() const = 0;
  // How much one send should carry at most; two ends take the smaller.
  virtual size_t segment_bytes() const = 0;
  virtual Result<std::unique_ptr<Channel>> open_channel() = 0;
};

}  // namespace hdt::transport::tagged
