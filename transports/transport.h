// transport.h: the backend contract. A backend (tcp, rdma, ofi, ucx, fake) moves bytes between two nodes over
// one pair of NICs. Everything above it (link, executor) is the same for all backends.
//
// A Backend discovers NICs and opens a Device for each. A Device listens, connects, registers memory and is
// polled. A Connection sends, in two ways:
//   send()   a small message, which is copied and delivered as bytes in the receiver's completion;
//   write()  payload that is placed at (region, offset) of the receiver, as by an RDMA write, followed by an
//            immediate of kImmediateBytes from which the receiver's upper layer learns what has arrived.
//
// Every backend keeps these rules; the conformance suite (tests/protocol/transports) checks them:
// - No call blocks, no thread is started, and no policy is made: the link chooses what to send where and
//   when.
// - Everything is reported by poll(), errors too. A call that returns a failure has started nothing.
// - A connection delivers the sends and writes of one direction in order, each exactly once, until it is
//   closed. Their kSent are reported in the same order.
// - Nothing is reported for a connection after its kClosed. Every send and write that was under way has been
//   reported before it, as successful or not, so that the owner of its memory may reuse it. The Connection
//   stays valid until Device::release(connection).
// - A connection, accepted or dialled, is a stranger until its owner calls admit(). A stranger may send a few
//   short messages and nothing else. They are delivered one per poll(), so that the owner may admit the
//   connection between two of them. A stranger costs one small buffer, and none of its bytes reach registered
//   memory or a library below.
// - Only a peer that a region was granted to may write to the region.
// - A write outside of what was granted, an oversized message or anything malformed closes the connection
//   with a reason, and no byte of it is placed. Foreign bytes harm no other connection. (Adapters that place
//   data themselves know keys and not peers: docs/design/rdma.md.)
// - A Backend, its Devices and their Connections are used by one thread at a time, the engine thread that
//   owns them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::transport {

// The version of this contract. A module that was built for another one is refused (module.h).
inline constexpr uint32_t kAbiVersion = 5;
inline constexpr size_t kMaxMessageBytes = 8192;           // of a send()
inline constexpr size_t kImmediateBytes = 64;              // of a write()
inline constexpr size_t kMaxWriteBytes = size_t{1} << 30;  // of a write()
// The limits of a stranger, who may send the handshake in which two daemons authenticate each other. Bytes of
// a message, and messages of a connection.
inline constexpr size_t kMaxStrangerMessageBytes = 4096;
inline constexpr size_t kMaxStrangerMessages = 16;

using Immediate = std::array<std::byte, kImmediateBytes>;

// Names a registered region to the peer. Opaque bytes, made by register_memory() and sent to the peer by the
// layer above. A key is valid on every device opened from the same Backend object, so that any rail of a link
// can carry any fragment; hardware with a key per NIC packs all of them into the 32 bytes. It cannot be
// guessed where the hardware allows that (tcp: a random 64-bit number).
struct RegionKey {
  std::array<std::byte, 32> bytes{};
  bool operator==(const RegionKey&) const = default;
};

// The identity of the peer, as the layer above has authenticated it. Backends only compare it.
struct PeerName {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const PeerName&) const = default;
};

// How many accepted connections may be strangers, over all devices of a Backend and for one remote address.
// If a new one finds no room, the oldest stranger of the address with the maximum number of them is closed
// (support/strangers.h), so that a peer that authenticates quickly always finds a place.
struct StrangerLimits {
  size_t all = 512;
  size_t per_address = 128;
};

struct DeviceInfo {
  std::string name;              // interface name: "eth0", "lo", "mlx5_0"
  std::string address;           // numeric address it is reached at, without a port
  uint64_t bits_per_second = 0;  // nominal speed; 0: unknown
  uint32_t mtu = 0;              // in bytes; 0: unknown
  uint32_t prefix_bits = 0;      // length of its subnet's prefix; 0: unknown
  bool up = false;               // up and with a carrier when it was discovered
};

class Connection;

// An event of a connection, reported by Device::poll(). kConnected or kAccepted is the first event of a
// connection, kReady comes before any kWritten, and kClosed is the last one.
struct Completion {
  enum class Kind : uint8_t {
    // connect() succeeded. Sends may be posted from now on, and not before.
    kConnected,
    // A new incoming connection. kConnected is not reported for it.
    kAccepted,
    // The connection was admitted and carries writes from now on. Reported before anything of the peer that
    // came after the admission.
    kReady,
    // The send() or write() with `token` is finished, and its memory may be reused. `error`: whether it
    // failed.
    kSent,
    // The peer's send(): `message`, valid until the next poll().
    kMessage,
    // The peer's write() was placed. `immediate` is what came with it, `bytes` its length, and `message` the
    // place.
    kWritten,
    // The connection is finished, and `error` says why. kSuccess: the peer closed it in order, or this end
    // closed or abandoned it. kNoDaemon: it was never connected, as the peer's host answered that nobody
    // listens. kSystem: a limit, here or at the peer. Other codes, kLink mostly: it was lost, or the peer
    // broke a rule.
    kClosed,
  };
  Kind kind;
  Connection* connection = nullptr;
  uint64_t token = 0;                  // kSent only
  std::span<const std::byte> message;  // kMessage: the bytes; kWritten: where they were placed
  Immediate immediate{};               // kWritten only
  size_t bytes = 0;                    // kWritten: the payload's length
  Status error;                        // kSent: why it failed; kClosed: the reason
};

// Owned by its Device, which makes it by connect() or for an accepted peer, and frees it by release(). The
// layer above holds a plain pointer.
class Connection {
 public:
  virtual ~Connection() = default;
  // The owner has authenticated the peer. To be called once, between kConnected or kAccepted and kClosed;
  // kReady follows. It must be called while the message that authenticates the peer is handled, because what
  // comes behind that message may be more than a stranger may send. kInvalidUsage if the connection is not
  // open, or was admitted.
  virtual Status admit(const PeerName& peer) = 0;
  // Sends `message`, which is copied: 1 to kMaxMessageBytes bytes, or to kMaxStrangerMessageBytes before
  // admit(). kSent is reported later with `token`, unless `token` is 0. kInvalidArgument for another length,
  // kInvalidUsage if the connection is not open.
  virtual Status send(std::span<const std::byte> message, uint64_t token) = 0;
  // Places [data, data + bytes) at `offset` (in bytes) of the peer's `region`, then delivers `immediate`.
  // `data` must stay unchanged until kSent, which is always reported. bytes may be 0: only the immediate is
  // delivered. Not allowed before kReady: kInvalidUsage. kInvalidArgument for more than kMaxWriteBytes, or
  // for bytes without memory.
  virtual Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
                       const Immediate& immediate, uint64_t token) = 0;
  // How many writes may be posted now without exceeding what the backend can keep moving. The link pulls
  // fragments by it. It is advice: a write beyond it is queued. send() does not count, as small messages are
  // always accepted while the connection lives.
  virtual size_t write_window() const = 0;
  // Starts to close in order: the peer gets kClosed with kSuccess. Data that is still queued is given
  // up and reported as failed. kClosed follows.
  virtual void close() = 0;
  // Closes a connection that does not work. Nothing is sent to the peer, and nothing is waited for. kClosed
  // follows.
  virtual void abandon() = 0;
  // Whether the peer's host still takes what is sent, as far as the backend knows without the peer's help.
  struct Progress {
    uint64_t moved = 0;        // changes whenever something has arrived, in either direction
    bool outstanding = false;  // something was sent and is not known to have arrived
    // How long it ordinarily takes until the arrival is known, by the latest measurements, in ns; 0: not
    // known.
    int64_t round_ns = 0;
  };
  virtual Progress progress() const = 0;
  virtual std::string local_address() const = 0;  // "127.0.1.1:45678"
  virtual std::string remote_address() const = 0;
};

// One NIC, as a backend opens it. Owned by the engine, which polls it every round and sleeps on its
// event_fd().
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Accepts connections from now on. Returns the address that peers pass to connect(), such as
  // "127.0.1.1:45678"; its form is the backend's. port 0: any.
  virtual Result<std::string> listen(uint16_t port) = 0;
  // Starts to connect from this device. kConnected or kClosed follows within `timeout_ms`.
  virtual Result<Connection*> connect(const std::string& address, int64_t timeout_ms) = 0;
  // Registers [base, base + bytes) with this device and all others of its Backend. Nobody may write to it
  // before it is granted. `fd` is the shared memory file that it is mapped from, or -1. kInvalidArgument for
  // no memory.
  virtual Result<RegionKey> register_memory(void* base, size_t bytes, int fd) = 0;
  // After it returns nothing is placed in the region any more: a connection in the middle of a write to it is
  // closed. Any device of the Backend may be called.
  virtual void deregister_memory(const RegionKey& key) = 0;
  // Lets `peer` write to the region, over every connection that was or will be admitted as that peer, until
  // the grant is revoked or the region deregistered. A second grant has no effect. kInvalidArgument for a
  // region that is not registered.
  virtual Status grant(const RegionKey& key, const PeerName& peer) = 0;
  // After it returns nothing of that peer is placed in the region any more: a connection of that peer in the
  // middle of a write to it is closed.
  virtual void revoke(const RegionKey& key, const PeerName& peer) = 0;
  // Moves what can be moved, and appends what has happened to `completions`. Returns true if anything was
  // done.
  virtual bool poll(std::vector<Completion>& completions) = 0;
  // Readable (as by epoll) when poll() has something to do. The same for the device's life.
  virtual int event_fd() const = 0;
  // While attended, the owner calls poll() after everything that it posts, and event_fd() need not become
  // readable for it; that spares a system call. The owner polls once more after it has set this to false,
  // before it sleeps on event_fd().
  virtual void set_attended(bool /*attended*/) {}
  // Frees a connection after its kClosed.
  virtual void release(Connection* connection) = 0;
};

// One object per engine: the regions and strangers of all its devices belong together. Made by
// make_tcp_backend() or by a module; it outlives its devices.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;  // "tcp", as in the configuration
  // The NICs that this backend can drive on this node, as they are now.
  virtual Result<std::vector<DeviceInfo>> discover() = 0;
  // Opens a NIC by its info; backends look at the name and the address.
  virtual Result<std::unique_ptr<Device>> open(const DeviceInfo& info) = 0;
  // To be called before a device listens. Until then the limits of StrangerLimits{} hold.
  virtual void limit_strangers(const StrangerLimits& limits) = 0;
};

// The built-in backend, with default options. Modules bring theirs through ModuleDescription::make
// (module.h).
std::unique_ptr<Backend> make_tcp_backend();

}  // namespace hdt::transport
