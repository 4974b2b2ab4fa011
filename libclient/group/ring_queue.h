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
  // A receive of the next message of whichever peer sends one first. `*source` gets that peer before the
  // operation is complete, if it succeeds; null: nobody wants to know.
  void push_recv_any(void* data, uint64_t bytes, int* source, std::shared_ptr<Operation> operation);
  // Does what can be done without waiting. True if anything was done. Messages that do not fit each
  // other fail the group (kMismatch); so does a peer that has departed before a message (kRankLost).
  bool progress();
  bool empty() const;
  // The operation whose deadline comes first, and a text that says what it waits for.
  struct Waiting {
    const Operation* operation;
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
    std::shared_ptr<Operation> operation;
    // A receive from any rank writes its sender there; may be null.
    int* source = nullptr;
    // Counts messages of this stream from 0; both ends count alike, and the cells carry it.
    uint64_t number = 0;
    // The number of its record (ipc/recorder.h).
    uint64_t record = 0;
    // Bytes written to or read from the ring so far.
    uint64_t moved = 0;
  };
  // A receive that has no place in a stream yet. `peer` is ipc::kAnyRank until a sender is found.
  struct Unmatched {
    uint32_t peer;
    Message message;
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
  // Gives the first receives of unmatched_ their places in streams, as far as messages have come. True if
  // it gave any.
  bool match_some();
  // The next peer in turn that has sent a message that no receive in its stream waits for.
  std::optional<uint32_t> next_sender();
  // The peer has departed, as far as its daemon has said. It writes no cells then but those that are in the
  // ring now, and consumes none.
  bool departed(uint32_t peer, ipc::Direction direction) const;
  // Fails the group (kRankLost): the peer has departed before this message. `done`: what it has not done.
  void fail_without(uint32_t peer, const Message& message, const char* done);
  // All other ranks have departed, so that what is not in the rings now never comes.
  bool all_others_departed() const;
  // The index of the ring in which messages from this peer arrive.
  uint32_t incoming(uint32_t peer) const;
  bool is_local(uint32_t peer) const { return access_.order.node_of_rank[peer] == access_.node; }
  // The local index of a rank of this node.
  uint32_t local_of(uint32_t peer) const;
  // Makes the daemon look at this ring: cells or room have come.
  void call_attention(uint32_t ring);
  // Puts a message at the end of its stream. If that throws, the message is as it was.
  void append(ipc::Recorded kind, uint32_t peer, Message&& message);

  const NodeAccess& access_;
  // By peer.
  std::map<uint32_t, Stream> sends_;
  std::map<uint32_t, Stream> recvs_;
  // The first one is a receive from any rank. It takes the next message, whoever sends it, so a receive
  // that was submitted later has to wait for it, whatever peer it names; all such are here, in order.
  std::deque<Unmatched> unmatched_;
  // The peer that is looked at first for the next receive from any rank: the one behind the last sender, so
  // that none is passed over for ever.
  uint32_t turn_ = 0;
};

}  // namespace hdt::client
