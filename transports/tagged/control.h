// control.h: the control socket of a connection, plain TCP: says who is at the other end and where his channel is, and knows
// what a connectionless library does not: that nobody listens, that the peer has closed in order, that it has died.
// After one hello a side, each byte is a signal; all of them ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/tcp/socket.h"

namespace hdt::transport::tagged {

inline constexpr uint32_t kHelloMagic = 0x43544448;  // "HDTC"
inline constexpr uint16_t kHelloVersion = 1;
inline constexpr size_t kMaxProtocolBytes = 64;
inline constexpr size_t kMaxAddressBytes = 16 << 10;

struct HelloHeader {
  uint32_t magic = kHelloMagic;
  uint16_t version = kHelloVersion;
  uint16_t protocol_bytes = 0;
  uint32_t address_bytes = 0;
  uint32_t segment_bytes = 0;
};
static_assert(sizeof(HelloHeader) == 16);

// What a side tells before anything else.
struct Hello {
  size_t segment_bytes = 0;        // Fabric::segment_bytes()
  std::string protocol;            // Fabric::protocol()
  std::vector<std::byte> address;  // Channel::address()
};

enum class Signal : uint8_t {
  kRing = 'R',     // look at your channel: for libraries that cannot wake anybody
  kTick = 'T',     // the kernel's acknowledgement of it shows that the peer's host can be reached
  kGoodbye = 'G',  // the sender closes in order; nothing follows
};

class Control {
 public:
  struct Input {
    std::optional<Hello> hello;
    bool rung = false;
    bool ended = false;  // `reason`: why; success after a goodbye
    Status reason;
  };

  void attach(tcp::Fd fd) { fd_ = std::move(fd); }
  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  tcp::Fd detach() { return std::move(fd_); }
  void drop() { fd_.reset(); }

  void push_hello(const Hello& hello);
  // Hands over what is left of the hello; false if the socket failed (errno).
  bool flush();
  bool flushed() const { return outbox_.empty(); }
  // False if it could not be handed over. A socket that is full is one the peer has yet to read: it is rung already.
  bool signal(Signal signal) const;
  Input read();

 private:
  Status parse(Input& input);

  tcp::Fd fd_;
  std::vector<std::byte> outbox_;
  std::vector<std::byte> inbox_;
  bool greeted_ = false;
};

}  // namespace hdt::transport::tagged
