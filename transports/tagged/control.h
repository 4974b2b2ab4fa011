// control.h: the control socket of a connection, plain TCP. It shows who is at the other end and where its
// data path is, and it detects what a connectionless library cannot: that nobody listens, that the peer has
// closed in order, that it has died.
//
// Each end sends items whose first byte says what they are (`Item`). First come messages of the owners
// ('M'), as long as these authenticate each other; then, to a peer that was admitted, one hello ('A').
// After the hello every byte is a Signal, and each signal rings: the receiver polls its data path.
//
// A peer that is not admitted may send a few short messages and nothing else. It is read no further than
// to the end of the item that has begun, so it costs one buffer of kMaxStrangerMessageBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/codec.h"
#include "base/status.h"
#include "transports/net/socket.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

// Ends with different versions refuse each other at the hello.
inline constexpr uint32_t kHelloMagic = 0x43544448;  // "HDTC"
inline constexpr uint16_t kHelloVersion = 2;
inline constexpr size_t kMaxProtocolBytes = 64;
inline constexpr size_t kMaxAddressBytes = 16 << 10;

// The head of a hello; the protocol and the address follow. Foreign until it was checked.
struct HelloHeader {
  uint32_t magic = kHelloMagic;
  uint16_t version = kHelloVersion;
  uint16_t protocol_bytes = 0;
  uint32_t address_bytes = 0;
  uint32_t segment_bytes = 0;
};
static_assert(sizeof(HelloHeader) == 16);

// The item that an end sends about its data path to a peer that it has admitted.
struct Hello {
  size_t segment_bytes = 0;        // Fabric::segment_bytes()
  std::string protocol;            // Fabric::protocol()
  std::vector<std::byte> address;  // DataPath::address()
};

// The first byte of what each end sends before the signals.
enum class Item : uint8_t {
  kHere = 'H',     // of the end that accepted, at once: the port speaks this protocol
  kMessage = 'M',  // a uint16_t with its length in bytes follows, then the message
  kHello = 'A',    // HelloHeader, protocol and address follow
};

// A byte after the hello; the goodbye may come before it as well.
enum class Signal : uint8_t {
  kRing = 'R',     // a frame was sent: for libraries whose data path has no descriptor
  kTick = 'T',     // asks only for the acknowledgement of the peer's kernel (progress())
  kGoodbye = 'G',  // the sender closes in order; nothing follows
};

// One end of a control socket. Owned by its connection and used on its thread; the connection watches the
// descriptor and calls read() and flush().
class Control {
 public:
  // The result of one read(). It holds one event of the handshake at most: the owner may admit the peer
  // because of it, and the bytes behind it are then judged differently.
  struct Input {
    std::vector<std::byte> message;  // empty: none
    // Checked, except for the address, which only the library can judge.
    std::optional<Hello> hello;
    bool here = false;   // kHere has arrived
    bool rung = false;   // signals have arrived
    bool ended = false;  // the peer has ended: `reason` says why; success after a goodbye
    Status reason;
  };

  // The socket, which is non-blocking. detach() gives it away, drop() closes it.
  void attach(tcp::Fd fd) { fd_ = std::move(fd); }
  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  tcp::Fd detach() { return std::move(fd_); }
  void drop() { fd_.reset(); }

  // The peer is not a stranger any more: longer messages and a hello are allowed.
  void admit() { admitted_ = true; }
  // Called by the end that accepted; the end that dialled calls expect_here() and waits for it.
  void push_here() { outbox_.push_back(static_cast<std::byte>(Item::kHere)); }
  void expect_here() { expects_here_ = true; }
  // Queues what flush() sends. A hello's parts must be within kMaxProtocolBytes and kMaxAddressBytes.
  void push_message(std::span<const std::byte> message);
  void push_hello(const Hello& hello);
  // Sends what is queued, as far as the socket takes it. False: the socket has failed, and errno is set.
  bool flush();
  bool flushed() const { return outbox_.empty(); }
  // Sends one signal, without a queue. False if it could not be sent. A socket that is full holds bytes
  // that the peer has not read, so the peer is rung already.
  bool signal(Signal signal) const;
  // Reads what has arrived, as far as the rules above allow.
  Input read();

 private:
  void queue(const Writer& item);
  // Reads into `room` and returns what has arrived. Empty: nothing is there now, or the peer has ended,
  // which is then in `input`.
  std::span<const std::byte> receive(std::span<std::byte> room, Input& input) const;
  // Before the hello, and after it.
  void read_word(Input& input);
  // As many bytes of an item have arrived as were wanted: it is complete, or its head says how many are
  // missing. Failure: malformed, the connection ends.
  Status look(Input& input);
  Status look_at_message(Input& input);
  Status look_at_hello(Input& input);
  void read_signals(Input& input);

  tcp::Fd fd_;
  std::vector<std::byte> outbox_;  // queued bytes
  std::vector<std::byte> inbox_;   // the item that has begun
  size_t wanted_ = 1;              // how long inbox_ must be before it is looked at again
  size_t messages_ = 0;            // of a stranger, the one under way included
  bool admitted_ = false;
  bool expects_here_ = false;  // kHere must be the next item
  bool greeted_ = false;       // the hello has arrived: signals follow
};

}  // namespace hdt::transport::tagged
