// data_path.h: what a library with tagged messages (libfabric, UCX) must provide to carry one connection: a
// data path to one peer, on which a message is matched with a receive by its tag. The interface is thin,
// so that everything above it can be driven in tests without a library (tests/protocol/tagged).
//
// All of it is used on the thread of the device, and nothing blocks.
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
  uint64_t id = 0;   // as given to send() or receive()
  size_t bytes = 0;  // of a receive: how many bytes have arrived
  Status error;      // why the operation failed; the data path is then of no more use
};

// The data path of one connection, which owns it. It is made by Fabric::open_data_path() and has no peer
// until connect().
class DataPath {
 public:
  // Drops what is under way. When it returns, no memory that was given to it is touched any more, neither
  // read nor written. This is the only way to end a single operation.
  virtual ~DataPath() = default;
  // The address of this end, for the peer's connect(). Opaque bytes.
  virtual std::vector<std::byte> address() const = 0;
  // Names the peer; `peer` is foreign, and not empty. It waits for nothing: an address that nobody has
  // shows as sends that fail, or never complete. kLink for an address that the library does not accept.
  virtual Status connect(std::span<const std::byte> peer) = 0;
  // Starts to send, or to receive. False: the library has no room now; try again after poll(). True:
  // started; the memory must stay as it is until poll() reports `id`. A failure is one of the whole
  // data path.
  //
  // Each tag is used once in each direction. A receive's `bytes` is the maximum that it takes; both ends
  // derive it from the same numbers.
  virtual Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) = 0;
  virtual Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) = 0;
  // Moves what can be moved, and appends what is over. A failure is one of the whole data path; what was
  // appended before it counts.
  virtual Status poll(std::vector<Finished>& finished) = 0;
  // Readable when poll() has something to do, provided that arm() has returned true. -1: the library has
  // no descriptor. Then the connection polls as long as operations are under way, and each end rings the
  // other over the control socket.
  virtual int fd() const = 0;
  // True: there is nothing to do now, and fd() becomes readable when there is. False: poll again first.
  virtual bool arm() = 0;
};

// A library opened on one NIC. Owned by the device, used on its thread; it outlives its data paths.
class Fabric {
 public:
  virtual ~Fabric() = default;
  // The protocol that two ends must have in common, for their hello: "ofi tcp;ofi_rxm". At most
  // kMaxProtocolBytes.
  virtual const std::string& protocol() const = 0;
  // The maximum of payload in one send, in bytes: kMinSegmentBytes to kMaxSegmentBytes. Two ends use the
  // smaller.
  virtual size_t segment_bytes() const = 0;
  // May take some milliseconds.
  virtual Result<std::unique_ptr<DataPath>> open_data_path() = 0;
};

}  // namespace hdt::transport::tagged
