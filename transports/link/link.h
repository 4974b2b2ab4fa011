// link.h: a Link is everything between two engines: one or more rails (Connections, over any backends), used
// as one. Writes are cut in chunks, rails pull chunks when their window has room, so each rail carries what
// it can and unequal ones add up. The receiver counts the bytes of each message and reports it once, when all
// of it is in memory, whatever order the chunks took.
//
// Order: control messages (send) arrive in the order they were sent. Writes complete in any order, also
// relative to control messages: what needs an order carries it in its LinkHeader.
//
// Ownership: the engine owns Devices and Connections, does the handshake on a new connection itself and hands
// it over by add_rail(). From then on it passes every completion of that connection to on_completion(), and
// may release the connection once on_completion() has returned from its kClosed. One thread at a time uses a
// Link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport {

inline constexpr size_t kLinkHeaderBytes = 32;
inline constexpr size_t kDefaultChunkBytes = size_t{256} << 10;
inline constexpr size_t kMinChunkBytes = size_t{16} << 10;
inline constexpr size_t kMaxChunkBytes = size_t{64} << 20;
inline constexpr uint64_t kMaxLinkWriteBytes = uint64_t{1} << 36;

// Opaque to the link: says to the layer above what a write was.
using LinkHeader = std::array<std::byte, kLinkHeaderBytes>;

// Place [data, data + bytes) at `offset` of the peer's `region`, then deliver `header` there. bytes may be 0.
// `data` must stay unchanged until on_sent(token) or on_down().
struct WriteRequest {
  const void* data = nullptr;
  size_t bytes = 0;
  RegionKey region;
  uint64_t offset = 0;
  LinkHeader header{};
  uint64_t token = 0;
};

class Link;

// What a link reports. Called only from inside Link::on_completion() and Link::close(). Implementations may
// call the link's write(), send() and close(), but must not destroy it.
class LinkObserver {
 public:
  virtual ~LinkObserver() = default;
  // The memory of write `token` may change again (it need not have arrived yet).
  virtual void on_sent(Link& link, uint64_t token) = 0;
  // All `bytes` of one write of the peer are in place.
  virtual void on_arrived(Link& link, const LinkHeader& header, uint64_t bytes) = 0;
  // A control message; `message` is valid during the call.
  virtual void on_message(Link& link, std::span<const std::byte> message) = 0;
  // The link is finished: all its rails are closed. The last call: pending writes are not reported one by
  // one, but their memory is not touched any more. `reason` names both addresses of the rail that ended it.
  virtual void on_down(Link& link, const Status& reason) = 0;
};

// A rail as status output shows it.
struct RailStatus {
  std::string local_address;
  std::string remote_address;
  uint64_t bytes_out = 0;   // payload of writes that left the memory
  uint64_t bytes_in = 0;    // payload of writes placed
  uint64_t writes_out = 0;  // chunks
  uint64_t writes_in = 0;
  uint64_t messages_out = 0;  // control messages
  uint64_t messages_in = 0;
  uint64_t bytes_in_flight = 0;
  bool open = true;
};

class Link {
 public:
  // The observer must outlive the link. chunk_bytes: kMinChunkBytes to kMaxChunkBytes.
  explicit Link(LinkObserver& observer, size_t chunk_bytes = kDefaultChunkBytes);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Adds a connected connection. Add the fastest first: among idle rails the first is taken. What was
  // queued before starts to move.
  void add_rail(Connection* connection);
  // Queues; any number may be queued. Fails, having queued nothing, for a write that is too large and on a
  // link that is going down.
  Status write(const WriteRequest& request);
  // A control message of 1..kMaxMessageBytes, copied.
  Status send(std::span<const std::byte> message);
  // A completion of one of this link's rails. Calls the observer, then lets rails pull.
  void on_completion(const Completion& completion);
  // Lets rails pull chunks while they have room. write(), add_rail() and on_completion() do it by themselves.
  void pump();
  // Closes all rails; on_down(reason) follows when all of them have reported kClosed (at once if there are
  // none).
  void close(const Status& reason);

  bool up() const;                // has at least one rail and is not going down
  bool down() const;              // on_down was called
  size_t pending_writes() const;  // writes whose on_sent is still to come
  std::vector<RailStatus> rails() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hdt::transport
