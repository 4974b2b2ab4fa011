// link.h: a Link connects two engines over one or more rails. A rail is a Connection of a backend; the link
// uses all its rails as one reliable transport. It cuts every write into fragments (`FragmentHeader`), and a
// rail pulls the next fragment whenever it has room. Each rail therefore carries as much as it can, and rails
// of unequal speed add up. The receiver counts the fragments of each write and reports the write once, when
// all of it is in memory, in whatever order the fragments came.
//
// A rail may be lost at any moment. Its data is sent again on the others once both ends agree on what
// had arrived, so that every write and every control message still arrives exactly once. A link without any
// rail waits for one to be added, and ends when none comes in time (docs/design/link.md).
//
// Order: control messages (send()) arrive in the order in which they were sent. Writes complete in any order,
// also relative to control messages. A layer above that needs an order puts it into its LinkHeader.
//
// Ownership: the engine owns Devices and Connections. It does the handshake on a new connection, and then
// hands the connection over with add_rail(). From then on it passes every completion of that connection to
// on_completion(), and may release the connection once on_completion() has returned from its kClosed.
//
// Threads: one thread at a time uses a Link; that is the engine thread. A link has no thread, no lock and no
// timer of its own. Once a round, after the completions, the engine calls share_nics() (wants_turn(),
// take_turn()), then flush(), and on_time() when next_time() has come.
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

// Bounds of the wire format, in bytes. The receiver ends the link of a peer that exceeds one of them.
inline constexpr size_t kLinkHeaderBytes = 32;
inline constexpr size_t kDefaultFragmentBytes = size_t{256} << 10;
inline constexpr size_t kMinFragmentBytes = size_t{16} << 10;
inline constexpr size_t kMaxFragmentBytes = size_t{64} << 20;
inline constexpr uint64_t kMaxLinkWriteBytes = uint64_t{1} << 36;
// The longest control message. The difference to kMaxMessageBytes is for the link's own NoticeHead.
inline constexpr size_t kMaxLinkMessageBytes = kMaxMessageBytes - 64;
// The link copies writes up to this size. Their memory is free as soon as they were handed to a rail; the
// memory of a larger write is free when the write has arrived.
inline constexpr size_t kCopiedWriteBytes = size_t{32} << 10;

// Opaque to the link: the receiver's upper layer learns from it what the write was.
using LinkHeader = std::array<std::byte, kLinkHeaderBytes>;

// A write: place [data, data + bytes) at `offset` of the peer's `region`, then deliver `header` there.
struct WriteRequest {
  const void* data = nullptr;  // must stay unchanged until on_sent(token) or on_down()
  size_t bytes = 0;            // 0 to kMaxLinkWriteBytes; 0: only `header` is delivered
  RegionKey region;            // a key of the peer, for the backend of this link's rails
  uint64_t offset = 0;         // in bytes, from the begin of the region
  LinkHeader header{};
  uint64_t token = 0;  // returned by on_sent(); any value, the link does not look at it
  // on_sent() follows only when the write has arrived, for a small write as well. The peer may delay the
  // acknowledgement of a small write until it has something else to send; Link::hurry() asks for it.
  bool until_arrived = false;
};

struct LinkOptions {
  // The maximum size of a fragment in bytes. Values outside [kMinFragmentBytes, kMaxFragmentBytes] are
  // clamped.
  size_t fragment_bytes = kDefaultFragmentBytes;
  // Adds a CRC32C to every fragment that this end sends. The receiver checks it wherever it is present.
  bool checksum = false;
  // How long a link that lost its last rail waits for another one (configuration: link.wait_ms).
  int64_t wait_ns = 5 * kNsPerSecond;
  // Silence after which a rail is given up, provided that another rail hears the peer (link.stall_ms).
  int64_t stall_ns = 20 * kNsPerMs;
  // Monotonic time in ns. Tests replace it.
  std::function<int64_t()> now = &now_ns;
};

// A rail as status output shows it. The counters continue when a rail between the same two addresses takes
// the place of a lost one.
struct RailStatus {
  enum class State : uint8_t {
    kGreeting,  // connected; the peer's link has not sent its hello yet, and this end sends nothing else
    kUp,        // carries fragments and notices
    kDown,      // given up or closed; it does not come back, but another rail may take its place
  };
  State state = State::kGreeting;
  std::string local_address;
  std::string remote_address;
  // Payload bytes and fragments that the backend reported sent. A fragment that the peer acknowledges before
  // that report is not counted.
  uint64_t bytes_out = 0;
  uint64_t bytes_in = 0;  // payload placed in this end's memory
  uint64_t writes_out = 0;
  uint64_t writes_in = 0;     // fragments placed in this end's memory
  uint64_t messages_out = 0;  // notices of every kind: control messages, acknowledgements, pings
  uint64_t messages_in = 0;
  uint64_t bytes_in_flight = 0;   // handed to the rail and not yet acknowledged
  uint64_t bytes_resent = 0;      // lost on this rail and returned to the queue for any rail
  uint64_t losses = 0;            // how often it was lost while it was up; an end in order does not count
  uint64_t corrupted = 0;         // received fragments whose checksum was wrong
  uint64_t bytes_per_second = 0;  // measured lately while it was busy; 0: not measured yet
  uint64_t alone_bytes_per_second = 0;  // the same, as of when no other class used its NIC
  std::string nic;                      // this end's NIC; all rails over it have the same text
  uint64_t nic_bits_per_second = 0;     // nominal; 0: not known
  // The part of the NIC that the link's class can count on beside other classes, more than 0 and at most 1.
  double nic_part = 1;
  std::string last_error;  // the reason of the latest loss; unchanged by an end in order
  bool up() const { return state == State::kUp; }
};

class Link;

// Receives what a link reports; implemented by the engine. All calls come on the thread that uses the link,
// from inside a call of the link:
//  - on_sent(), on_arrived(), on_message() and on_rail_up() from on_completion();
//  - on_down() from on_completion(), on_time() or close();
//  - on_rail_down() from any call that may send or close, also from write() and send(): each of them may be
//    the one that finds a connection dead.
// Implementations may call the link's write(), send() and close(), but must not destroy it.
class LinkObserver {
 public:
  virtual ~LinkObserver() = default;
  // The memory of write `token` may change again: the write has arrived, or a copy of it is with the rails.
  // Called once per write, unless on_down() comes first.
  virtual void on_sent(Link& link, uint64_t token) = 0;
  // All `bytes` of one write of the peer are in place. Called once per write. Nothing that this end sends
  // before the call acknowledges the write's last fragment.
  virtual void on_arrived(Link& link, const LinkHeader& header, uint64_t bytes) = 0;
  // A control message of 1 to kMaxLinkMessageBytes bytes; `message` is valid during the call only.
  virtual void on_message(Link& link, std::span<const std::byte> message) = 0;
  // The link is finished, and all its rails are closed. This is the last call. Pending writes are not
  // reported one by one, but their memory is not touched any more.
  virtual void on_down(Link& link, const Status& reason) = 0;
  // A rail begins or ceases to carry traffic. `connection` identifies it. on_rail_down() follows every
  // on_rail_up() once. `lost` is the reason of a loss, and "" where the link ends in order, whatever
  // RailStatus::last_error holds of earlier losses.
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

  // Adds a connection that has reported kReady, and sends the hello on it. The rail carries traffic from the
  // peer's hello on; without that hello it is given up after 2 s. A connection that is added to a link which
  // is ending is closed.
  // `lane`: its part in a NIC that several classes share; null: it has the NIC alone. With a lane, the owner
  // must serve the NICs as nic_share.h describes: wants_turn(), then take_turn() until no link moves.
  void add_rail(Connection* connection, std::unique_ptr<NicShare::Lane> lane = nullptr);
  // Gives up a rail that does not work. `reason` goes into its status; the peer learns only that the rail is
  // lost. Data that was under way on it is sent again on the others. No effect for an unknown connection.
  void drop_rail(const Connection* connection, const Status& reason);
  // Gives up all rails that are up, but none that still waits for the peer's hello.
  void drop_rails(const Status& reason);
  // Queues a write; there is no limit to the number of queued writes. On failure nothing is queued:
  // kInvalidArgument for a write that is too large or without memory, kLink for a link that is ending.
  Status write(const WriteRequest& request);
  // Queues a control message of 1 to kMaxLinkMessageBytes bytes, which is copied. Without a rail it waits for
  // the next one. kInvalidArgument for another length, kLink for a link that is ending.
  Status send(std::span<const std::byte> message);
  // With shared NICs: wants_turn() marks each NIC for which this link has a fragment and a rail with room;
  // take_turn() hands over one fragment if a NIC lets it. True if one was handed over.
  void wants_turn() const;
  bool take_turn();
  // Takes a completion of one of this link's rails. Calls the observer, then lets rails pull fragments.
  // Completions of other connections are ignored.
  void on_completion(const Completion& completion);
  // Acknowledges what has come, where no fragment or notice that was sent meanwhile carries the number. Cheap
  // when nothing is owed. It also frees the rails that are finished: they may be in use further up the call
  // stack until then, so it must not be called from inside an observer's call.
  void flush();
  // on_time() is to be called when next_time() has come. Time as by LinkOptions::now; INT64_MAX: never.
  void on_time();
  int64_t next_time() const;
  // Closes all rails in order, so that the peer's link ends as well. on_down(reason) follows when all of them
  // have reported kClosed, or at once if there are none. No effect on a link that is ending already.
  void close(const Status& reason);

  bool up() const;    // a rail carries traffic, and the link is not ending
  bool down() const;  // on_down() was called
  // An exception has left one of the calls above. The link's state may be half written, and a fragment may be
  // lost that belongs to any group. The owner must end the link.
  bool torn() const;
  bool peer_ended() const;        // the peer, or the kernel when its process died, closed a rail in order
  size_t pending_writes() const;  // writes whose on_sent() is still to come
  uint64_t queued_bytes() const;  // bytes of writes that no rail has taken yet
  // True if every write has arrived.
  bool settled() const;
  // written() is the number of writes that were queued so far; arrived(n) is true if the first n of them have
  // arrived. A caller notes written() after its last write, and asks arrived() of that number later.
  uint64_t written() const;
  bool arrived(uint64_t writes) const;
  // last_message() is the number of the control message that was queued last, 0 before the first;
  // heard(n) is true if the peer has acknowledged that message and all before it. The peer may delay that
  // acknowledgement for as long as nothing else is sent, unless it is asked by ping().
  uint64_t last_message() const;
  bool heard(uint64_t message) const;
  // Asks the peer to acknowledge at once, on each rail that has something under way. For small writes with
  // `until_arrived`, whose acknowledgement the peer may otherwise delay.
  void hurry();
  // Asks the peer for an answer on every rail, so that a dead rail is noticed although nothing else is sent
  // on it.
  void ping();
  // The status of every rail, and of each pair of addresses whose rail was lost and not replaced yet.
  std::vector<RailStatus> rails() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hdt::transport
