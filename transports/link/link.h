// link.h: a Link is everything between two engines: one or more rails (Connections, over any backends), used
// as one. Writes are cut in chunks, rails pull chunks when they have room, so each rail carries what it can
// and unequal ones add up. The receiver counts the bytes of each message and reports it once, when all of it
// is in memory, whatever order the chunks took.
//
// A rail may be lost at any moment: what it carried is sent again on the others once both ends agree on what
// had arrived, so every write and every control message still comes exactly once. Without any rail the link
// waits for one to be added, and ends when none comes in time (docs/design/link.md).
//
// Order: control messages (send) arrive in the order they were sent. Writes complete in any order, also
// relative to control messages: what needs an order carries it in its LinkHeader.
//
// Ownership: the engine owns Devices and Connections, does the handshake on a new connection itself and hands
// it over by add_rail(). From then on it passes every completion of that connection to on_completion(), and
// may release the connection once on_completion() has returned from its kClosed. One thread at a time uses a
// Link. After a batch of completions the engine calls flush(), and at next_time() on_time().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transports/link/nic_share.h"
#include "transports/transport.h"

namespace hdt::transport {

inline constexpr size_t kLinkHeaderBytes = 32;
inline constexpr size_t kDefaultChunkBytes = size_t{256} << 10;
inline constexpr size_t kMinChunkBytes = size_t{16} << 10;
inline constexpr size_t kMaxChunkBytes = size_t{64} << 20;
inline constexpr uint64_t kMaxLinkWriteBytes = uint64_t{1} << 36;
// Of a control message: what the link says of itself has room beside it.
inline constexpr size_t kMaxLinkMessageBytes = kMaxMessageBytes - 64;
// Writes up to this size are copied, so that their memory is free as soon as they are handed to a rail; that
// of larger ones when they have arrived.
inline constexpr size_t kCopiedWriteBytes = size_t{32} << 10;

// Opaque to the link: says to the layer above what a write was.
using LinkHeader = std::array<std::byte, kLinkHeaderBytes>;

// Place [data, data + bytes) at `offset` of the peer's `region`, then deliver `header` there. bytes may be 0.
// `data` must stay unchanged until on_sent(token) or on_down(). With `until_arrived` that is when it has
// arrived, also for a small write, of which the peer is in no hurry to say so (Link::hurry).
struct WriteRequest {
  const void* data = nullptr;
  size_t bytes = 0;
  RegionKey region;
  uint64_t offset = 0;
  LinkHeader header{};
  uint64_t token = 0;
  bool until_arrived = false;
};

struct LinkOptions {
  size_t chunk_bytes = kDefaultChunkBytes;  // at most; kMinChunkBytes to kMaxChunkBytes
  bool checksum = false;                    // CRC32C of every chunk this end sends
  int64_t wait_ns = 5 * kNsPerSecond;       // how long a link that lost its last rail waits for another one
  int64_t stall_ns = 20 * kNsPerMs;  // silence after which a rail is given up, if another one hears the peer
  std::function<int64_t()> now = &now_ns;
};

// A rail as status output shows it. Counters go on when it is lost and comes back.
struct RailStatus {
  enum class State : uint8_t {
    kGreeting,  // connected; the peer's link has not said hello on it yet
    kUp,
    kDown,
  };
  State state = State::kGreeting;
  std::string local_address;
  std::string remote_address;
  uint64_t bytes_out = 0;   // payload of writes that left the memory
  uint64_t bytes_in = 0;    // payload of writes placed
  uint64_t writes_out = 0;  // chunks
  uint64_t writes_in = 0;
  uint64_t messages_out = 0;  // control messages
  uint64_t messages_in = 0;
  uint64_t bytes_in_flight = 0;  // not yet acknowledged
  uint64_t bytes_resent = 0;     // lost on this rail, sent again on another one
  uint64_t losses = 0;
  uint64_t corrupted = 0;         // chunks whose checksum was wrong here
  uint64_t bytes_per_second = 0;  // measured lately while it was busy; 0: not yet
  std::string last_error;         // why it was lost last; not of an end in order
};

class Link;

// What a link reports. Called only from inside on_completion(), flush(), on_time(), add_rail(), drop_rail()
// and close(). Implementations may call the link's write(), send() and close(), but must not destroy it.
class LinkObserver {
 public:
  virtual ~LinkObserver() = default;
  // The memory of write `token` may change again: it has arrived, or was copied.
  virtual void on_sent(Link& link, uint64_t token) = 0;
  // All `bytes` of one write of the peer are in place.
  virtual void on_arrived(Link& link, const LinkHeader& header, uint64_t bytes) = 0;
  // A control message; `message` is valid during the call.
  virtual void on_message(Link& link, std::span<const std::byte> message) = 0;
  // The link is finished: all its rails are closed. The last call: pending writes are not reported one by
  // one, but their memory is not touched any more.
  virtual void on_down(Link& link, const Status& reason) = 0;
  // A rail carries traffic from now on; it does so no more. `connection` identifies it. `lost`: why; "" where
  // the link ends in order, whatever RailStatus::last_error tells of earlier losses.
  virtual void on_rail_up(Link&, const Connection&, const RailStatus&) {}
  virtual void on_rail_down(Link&, const Connection&, const RailStatus&, const std::string& lost) {
    (void)lost;
  }
};

class Link {
 public:
  // The observer must outlive the link.
  explicit Link(LinkObserver& observer, LinkOptions options = {});
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Adds a connection that is ready. It carries traffic when the peer's link has said hello on it. `lane`:
  // its part in a NIC that several classes share; with one, serve NICs as nic_share.h says: wants_turn(),
  // then take_turn() until no link moves.
  void add_rail(Connection* connection, std::unique_ptr<NicShare::Lane> lane = nullptr);
  // Gives up a rail that does not work; `reason` in its status and to the peer's.
  void drop_rail(const Connection* connection, const Status& reason);
  // Gives up all that are up, not those on which the peer's link has still to say hello.
  void drop_rails(const Status& reason);
  // Queues; any number may be queued. Fails, having queued nothing, for a write that is too large and on a
  // link that is going down.
  Status write(const WriteRequest& request);
  // A control message of 1..kMaxLinkMessageBytes, copied.
  Status send(std::span<const std::byte> message);
  // Says which NICs it waits for; hands over one chunk if it may now.
  void wants_turn() const;
  bool take_turn();
  // A completion of one of this link's rails. Calls the observer, then lets rails pull.
  void on_completion(const Completion& completion);
  // Acknowledges what has come, where nothing that was written meanwhile carries it. Cheap when nothing is
  // owed.
  void flush();
  // To be called when next_time() (in now()'s time, INT64_MAX: never) has come.
  void on_time();
  int64_t next_time() const;
  // Closes all rails in order, so that the peer's link ends as well; on_down(reason) follows when all of them
  // have reported kClosed (at once if there are none).
  void close(const Status& reason);

  bool up() const;    // has a rail that carries traffic, and is not going down
  bool down() const;  // on_down was called
  // Something threw inside one of the calls above: what it says of itself may be half written, a chunk of
  // another group lost. Whoever owns it ends it.
  bool torn() const;
  bool peer_ended() const;        // the peer, or the kernel when its process died, has closed it in order
  size_t pending_writes() const;  // writes whose on_sent is still to come
  uint64_t queued_bytes() const;  // of writes, that no rail has taken yet
  // Everything that was written has arrived.
  bool settled() const;
  // How many writes were queued so far; whether the first `writes` of them have arrived.
  uint64_t written() const;
  bool arrived(uint64_t writes) const;
  // Asks the peer to acknowledge at once what nobody waits for.
  void hurry();
  // Asks the peer on every rail for an answer, so that a rail that is dead ends though nothing else is sent
  // on it.
  void ping();
  std::vector<RailStatus> rails() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hdt::transport
