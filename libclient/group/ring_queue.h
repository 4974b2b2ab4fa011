// ring_queue.h: this rank's sends and receives. Messages of one direction between two ranks match in
// call order, and travel as cells through the message rings of ipc/segment.h. On one node the two ranks
// share a ring. Between nodes the daemons carry cells from the sender's ring to the receiver's.
//
// No stream can block another: each pair of ranks and direction has its own ring and its own list of
// messages, and progress() looks at all of them. So any pattern of sends and receives that is complete
// makes progress.
//
// The Communicator owns the queue. It is not thread-safe: the communicator's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "libclient/common/node_access.h"
#include "libclient/common/operation.h"

namespace hdt::client {

// A message ends when its last cell was written (send) or consumed (receive). The head of each list is
// the message that is under way.
class RingQueue {
 public:
  // `access` must outlive the queue.
  explicit RingQueue(const NodeAccess& access) : access_(access) {}

  // Appends a message. `bytes` may be 0. The data must stay valid until the operation is complete.
  void push_send(uint32_t peer, const void* data, uint64_t bytes, std::shared_ptr<Operation> operation);
  void push_recv(uint32_t peer, void* data, uint64_t bytes, std::shared_ptr<Operation> operation);
  // Does what can be done without waiting. True if anything was done. Messages that do not fit each
  // other fail the group (kMismatch); so does a peer that has departed (kRankLost).
  bool progress();
  bool empty() const;
  // The operation whose deadline comes first, and a text that says what it waits for.
  struct Waiting {
    const Operation* operation;
    uint32_t peer;
    std::string what;
  };
  // Nothing: no message is pending.
  std::optional<Waiting> most_urgent() const;
  // Completes all operations with `status`, for a group that has failed. Touches no buffer. Throws
  // std::bad_alloc if there is no memory for a copy of the text; the rest is still in the queue then.
  void fail_all(const Status& status);

 private:
  // One message to or from a peer.
  struct Message {
    std::byte* data;
    uint64_t bytes;
    // Counts messages of this stream from 0; both ends count alike, and the cells carry it.
    uint64_t number;
    std::shared_ptr<Operation> operation;
    // The number of its record (ipc/recorder.h).
    uint64_t record;
    // Bytes written to or read from the ring so far.
    uint64_t moved = 0;
    bool started = false;  // a message of 0 bytes is one empty cell
  };
  // The messages with one peer in one direction. A stream stays when it is empty, as it counts messages.
  struct Stream {
    std::deque<Message> messages;
    uint64_t next_number = 0;
  };

  // Writes cells of the stream's messages while the ring has room. True if it wrote any.
  bool send_some(uint32_t peer, Stream& stream);
  // Consumes cells for the stream's messages while the ring has any. True if it consumed any.
  bool recv_some(uint32_t peer, Stream& stream);
  bool is_local(uint32_t peer) const { return access_.order.node_of_rank[peer] == access_.node; }
  // The local index of a rank of this node.
  uint32_t local_of(uint32_t peer) const;
  // Makes the daemon look at this ring: cells or room have come.
  void call_attention(uint32_t ring);
  void push(ipc::Recorded kind, uint32_t peer, std::byte* data, uint64_t bytes,
            std::shared_ptr<Operation> operation);

  const NodeAccess& access_;
  // By peer.
  std::map<uint32_t, Stream> sends_;
  std::map<uint32_t, Stream> recvs_;
};

}  // namespace hdt::client
