// transport.h: the backend contract. A backend (tcp, rdma, ofi, ucx, fake) moves bytes between two nodes over
// one NIC pair; everything above it (link, executor) is the same for all of them.
//
// Shape: a Backend discovers Devices (NICs); a Device listens, connects, registers memory and is polled; a
// Connection sends. Two ways to move bytes:
//   send()   a small message, copied, delivered as bytes in the receiver's completion;
//   write()  payload placed by the receiver at (region, offset), RDMA-write style, followed by an immediate
//            of kImmediateBytes that tells the receiver's upper layer what has arrived.
//
// Rules every backend keeps, checked by the conformance suite (tests/protocol/transports):
// - No call blocks, no thread is started, no policy is made: what to send where and when is the link's
//   choice.
// - Everything is reported by poll(), errors too. A call that returns a failure has started nothing.
// - A connection delivers sends and writes of one direction in order, each exactly once, until it is closed.
// - After kClosed for a connection nothing more is reported for it; every send and write that was under way
//   has been reported before, successful or not (so the owner of its memory may reuse it). The Connection
//   stays valid until Device::release(connection).
// - A connection, accepted or dialled, is a stranger until its owner says admit(). A stranger may send a few
//   short messages and nothing else; they are handed over one a poll(), so that its owner may admit it
//   between two of them. It costs one small buffer, and nothing of it reaches memory that is registered, or a
//   library below.
// - A region may be written by the peers that it was granted to, and by nobody else.
// - A write outside of what was granted, an oversized message, anything malformed: the connection is closed
//   with a reason; no byte is placed. Foreign bytes harm no one else. (Adapters that place by themselves know
//   keys, not peers: docs/design/rdma.md.)
// - A Backend, its Devices and their Connections are used by one thread at a time (the engine thread that
//   owns them).
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

inline constexpr uint32_t kAbiVersion = 4;
inline constexpr size_t kMaxMessageBytes = 8192;
inline constexpr size_t kImmediateBytes = 64;
inline constexpr size_t kMaxWriteBytes = size_t{1} << 30;
// What a stranger may send: the words of two daemons that find out who the other one is.
inline constexpr size_t kMaxStrangerMessageBytes = 4096;
inline constexpr size_t kMaxStrangerMessages = 16;

using Immediate = std::array<std::byte, kImmediateBytes>;

// Names a registered region to the other side: opaque bytes, made by register_memory, sent to the peer by the
// layer above. Valid on every device opened from the same Backend object, so that any rail of a link can
// carry a chunk (hardware with a key per NIC packs them into the 32 bytes). Unguessable where the hardware
// allows (tcp: a random 64-bit number).
struct RegionKey {
  std::array<std::byte, 32> bytes{};
  bool operator==(const RegionKey&) const = default;
};

// Who is at the other end, as the layer above has found out. Backends only compare it.
struct PeerName {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const PeerName&) const = default;
};

// How many accepted connections that are strangers a Backend holds, over all its devices. Where there is no
// room for another one, the oldest of the address that has the most is closed, so that who is quick finds a
// place.
struct StrangerLimits {
  size_t all = 512;
  size_t per_address = 128;
};

struct DeviceInfo {
  std::string name;              // interface name: "eth0", "lo", "mlx5_0"
  std::string address;           // numeric address it is reached at, without a port
  uint64_t bits_per_second = 0;  // 0: unknown
  int numa_node = -1;            // -1: unknown
  uint32_t mtu = 0;              // 0: unknown
  uint32_t prefix_bits = 0;      // of its subnet; 0: unknown
  bool up = false;
};

class Connection;

struct Completion {
  enum class Kind : uint8_t {
    kConnected,  // connect() succeeded; sends may be posted now (and not before)
    kAccepted,   // a new incoming connection; kConnected is not reported for it
    kReady,  // the connection was admitted, and carries writes from now on; before anything of the peer that
             // came after the admission
    kSent,   // send() or write() `token`: its memory may be reused
    kMessage,  // the peer's send(): `message`, valid until the next poll()
    kWritten,  // the peer's write() has been placed; `immediate` says what it was, `bytes` how long,
               // `message` where
    kClosed,   // the connection is finished; `error` says why (kSuccess: the peer closed it in order,
               // kNoDaemon: it was never connected, as the peer's host answered that nobody listens;
               // kSystem: a limit, here or there)
  };
  Kind kind;
  Connection* connection = nullptr;
  uint64_t token = 0;
  std::span<const std::byte> message;
  Immediate immediate{};
  size_t bytes = 0;
  Status error;  // kSent: why it failed; kClosed: the reason
};

class Connection {
 public:
  virtual ~Connection() = default;
  // The owner knows who is at the other end, and trusts it. Between kConnected or kAccepted and kClosed,
  // once; kReady follows. To be called while the message that shows who it is is looked at: what comes behind
  // it may be more than a stranger may send.
  virtual Status admit(const PeerName& peer) = 0;
  // Copies `message` (1..kMaxMessageBytes; of a stranger 1..kMaxStrangerMessageBytes). kSent is reported
  // later with `token`, unless token is 0.
  virtual Status send(std::span<const std::byte> message, uint64_t token) = 0;
  // Places [data, data + bytes) at `offset` of the peer's `region`, then delivers `immediate`. `data` must
  // stay unchanged until kSent. bytes may be 0 (only the immediate is delivered). Not before kReady.
  virtual Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
                       const Immediate& immediate, uint64_t token) = 0;
  // Writes that may be posted now without exceeding what the backend can keep moving; the link pulls by it.
  // send() is not counted: small messages are always accepted while the connection lives.
  virtual size_t write_window() const = 0;
  // Starts closing; what is still queued is given up (reported as failed). kClosed follows.
  virtual void close() = 0;
  // The same for a connection that does not work: the peer is told nothing, and nothing is waited for.
  virtual void abandon() = 0;
  // Whether the peer's host still takes what is sent, as far as the backend knows without the peer's help.
  struct Progress {
    uint64_t moved = 0;        // changes whenever something of either direction has arrived
    bool outstanding = false;  // something is on its way that has not
    // How long it may ordinarily take until that is known of what is on its way, by how long it took lately;
    // 0: not known.
    int64_t round_ns = 0;
  };
  virtual Progress progress() const = 0;
  virtual std::string local_address() const = 0;  // "127.0.1.1:45678"
  virtual std::string remote_address() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Accepts connections from now on; returns the address that peers connect() to ("127.0.1.1:45678"; backends
  // choose the form). port 0: any.
  virtual Result<std::string> listen(uint16_t port) = 0;
  // Starts connecting from this device; kConnected or kClosed follows within `timeout_ms`.
  virtual Result<Connection*> connect(const std::string& address, int64_t timeout_ms) = 0;
  // Makes [base, base + bytes) known by the key to this device and all others of its Backend. Nobody may
  // write to it until it is granted. `fd` (or -1) is the shared memory file it is mapped from.
  virtual Result<RegionKey> register_memory(void* base, size_t bytes, int fd) = 0;
  // After it returns nothing is placed in the region any more: a connection in the middle of a write is
  // closed. Any device of the Backend may be asked.
  virtual void deregister_memory(const RegionKey& key) = 0;
  // Lets `peer` write to the region, over every connection that was or will be admitted as that peer, until
  // it is revoked or deregistered. Granting twice is granting once. Fails for a region that is not
  // registered.
  virtual Status grant(const RegionKey& key, const PeerName& peer) = 0;
  // After it returns nothing of that peer is placed in the region any more: a connection of that peer in the
  // middle of a write to it is closed.
  virtual void revoke(const RegionKey& key, const PeerName& peer) = 0;
  // Moves what can be moved and appends what has happened. Returns true if anything was done.
  virtual bool poll(std::vector<Completion>& completions) = 0;
  // Readable (as by epoll) when poll() has something to do. Fixed for the device's life.
  virtual int event_fd() const = 0;
  // While attended, poll() is called after everything that is posted, and event_fd() need not say so: that
  // spares a system call. Its owner polls once more after it has set this back, before it sleeps on
  // event_fd().
  virtual void set_attended(bool /*attended*/) {}
  // Frees a connection after its kClosed.
  virtual void release(Connection* connection) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual Result<std::vector<DeviceInfo>> discover() = 0;
  virtual Result<std::unique_ptr<Device>> open(const DeviceInfo& info) = 0;
  // To be called before a device listens; those of StrangerLimits{} hold until then.
  virtual void limit_strangers(const StrangerLimits& limits) = 0;
};

// Built-in backends; modules bring theirs through an extern "C" factory of the same shape.
std::unique_ptr<Backend> make_tcp_backend();

}  // namespace hdt::transport
