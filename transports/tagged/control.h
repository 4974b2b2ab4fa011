// control.h: the control socket of a connection, plain TCP: says who is at the other end and where his
// channel is, and knows what a connectionless library does not: that nobody listens, that the peer has closed
// in order, that it has died.
//
// Each side sends words, of which the first byte says what they are: messages of their owners ('M'), as long
// as these find out about each other; then, to a peer that was admitted, one hello ('A'). After it each byte
// is a signal; all of them ring. A peer that is not admitted may send a few short messages and nothing else,
// and is read no further than to the end of the word that has begun: it costs one buffer of
// kMaxStrangerMessageBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/net/socket.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

inline constexpr uint32_t kHelloMagic = 0x43544448;  // "HDTC"
inline constexpr uint16_t kHelloVersion = 2;
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

// What a side tells of its channel, to a peer that it has admitted.
struct Hello {
  size_t segment_bytes = 0;        // Fabric::segment_bytes()
  std::string protocol;            // Fabric::protocol()
  std::vector<std::byte> address;  // Channel::address()
};

// What each side says before the signals.
enum class Word : uint8_t {
  kHere = 'H',     // by the end that accepted, at once: the port is one of this protocol
  kMessage = 'M',  // uint16_t: how long; the message
  kHello = 'A',    // HelloHeader, protocol, address
};

enum class Signal : uint8_t {
  kRing = 'R',     // look at your channel: for libraries that cannot wake anybody
  kTick = 'T',     // the kernel's acknowledgement of it shows that the peer's host can be reached
  kGoodbye = 'G',  // the sender closes in order; nothing follows
};

class Control {
 public:
  struct Input {
    std::vector<std::byte> message;  // empty: none came; one at most, as its owner may admit the peer then
    std::optional<Hello> hello;
    bool here = false;
    bool rung = false;
    bool ended = false;  // `reason`: why; success after a goodbye
    Status reason;
  };

  void attach(tcp::Fd fd) { fd_ = std::move(fd); }
  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  tcp::Fd detach() { return std::move(fd_); }
  void drop() { fd_.reset(); }

  // The peer is no stranger any more.
  void admit() { admitted_ = true; }
  // Of the end that accepted; the other one waits for it.
  void push_here() { outbox_.push_back(static_cast<std::byte>(Word::kHere)); }
  void expect_here() { expects_here_ = true; }
  void push_message(std::span<const std::byte> message);
  void push_hello(const Hello& hello);
  // Hands over what is left of what was pushed; false if the socket failed (errno).
  bool flush();
  bool flushed() const { return outbox_.empty(); }
  // False if it could not be handed over. A socket that is full is one the peer has yet to read: it is rung
  // already.
  bool signal(Signal signal) const;
  Input read();

 private:
  // What has come, into `room`. Nothing: there is nothing now, or the peer has ended, as `input` says then.
  std::span<const std::byte> receive(std::span<std::byte> room, Input& input) const;
  void read_word(Input& input);
  // What has come of a word is as long as was wanted: it is complete, or says how much is missing.
  Status look(Input& input);
  Status look_at_message(Input& input);
  Status look_at_hello(Input& input);
  void read_signals(Input& input);

  tcp::Fd fd_;
  std::vector<std::byte> outbox_;
  std::vector<std::byte> inbox_;
  size_t wanted_ = 1;    // of the word that inbox_ begins with
  size_t messages_ = 0;  // of a stranger
  bool admitted_ = false;
  bool expects_here_ = false;
  bool greeted_ = false;
};

}  // namespace hdt::transport::tagged
