// ring_queue.cc: sends and receives over message rings. A ring has two counters: `head`, the cells
// written, and `tail`, the cells consumed. On one node one rank writes each of them. Between nodes the
// daemon writes the other counter of each ring: it moves `tail` of an outgoing ring as the receiver
// consumes, and `head` of an incoming one as cells land.
#include "libclient/group/ring_queue.h"

#include <algorithm>
#include <cstring>

namespace hdt::client {

using ipc::CellHeader;
using ipc::Direction;
using ipc::kAttentionRing;
using ipc::MessageRing;
using ipc::RankState;
using ipc::Recorded;

void RingQueue::append(Recorded kind, uint32_t peer, Message&& message) {
  Stream& stream = (kind == Recorded::kSend ? sends_ : recvs_)[peer];
  message.number = stream.next_number;
  message.record = access_.recorder().begin(kind, peer, message.number, message.bytes);
  // The place is made before the message is moved into it.
  stream.messages.push_back(std::move(message));
  ++stream.next_number;
}

// The queue starts nothing in the next three; the communicator calls progress() afterwards, under the same
// lock.

void RingQueue::push_send(uint32_t peer, const void* data, uint64_t bytes,
                          std::shared_ptr<Operation> operation) {
  append(Recorded::kSend, peer,
         {static_cast<std::byte*>(const_cast<void*>(data)), bytes, std::move(operation)});
}

void RingQueue::push_recv(uint32_t peer, void* data, uint64_t bytes, std::shared_ptr<Operation> operation) {
  Message message{static_cast<std::byte*>(data), bytes, std::move(operation)};
  if (unmatched_.empty()) return append(Recorded::kReceive, peer, std::move(message));
  unmatched_.push_back({peer, std::move(message)});
}

// It is recorded as a receive from any rank until it is matched, and from then on, in a second record, as
// one from that rank: a record's peer does not change.
void RingQueue::push_recv_any(void* data, uint64_t bytes, int* source, std::shared_ptr<Operation> operation) {
  unmatched_.push_back({ipc::kAnyRank, {static_cast<std::byte*>(data), bytes, std::move(operation), source}});
  unmatched_.back().message.record = access_.recorder().begin(Recorded::kReceive, ipc::kAnyRank, 0, bytes);
}

// Positions of a node are contiguous, in the order of local indices.
uint32_t RingQueue::local_of(uint32_t peer) const {
  return static_cast<uint32_t>(access_.order.position_of[peer] - access_.order.first_position[access_.node]);
}

// The sender's outgoing ring, if both ranks share it; otherwise this rank's own incoming ring.
uint32_t RingQueue::incoming(uint32_t peer) const {
  return is_local(peer) ? access_.layout().ring_index(Direction::kOut, local_of(peer), access_.rank)
                        : access_.layout().ring_index(Direction::kIn, access_.local, peer);
}

// Cells arrive whether or not a receive waits for them, so a ring with a cell is a message that has come.
// A stream that has receives is left out: they were submitted earlier, so the next message is theirs. The
// cell itself is looked at by recv_some().
std::optional<uint32_t> RingQueue::next_sender() {
  const uint32_t ranks = access_.layout().ranks;
  for (uint32_t i = 0; i < ranks; ++i) {
    const uint32_t peer = (turn_ + i) % ranks;
    const auto stream = recvs_.find(peer);
    if (stream != recvs_.end() && !stream->second.messages.empty()) continue;
    const MessageRing& ring = access_.segment.ring(incoming(peer));
    // relaxed: this rank is the only writer of `tail`.
    if (ring.tail.load(std::memory_order_relaxed) == ring.head.load(std::memory_order_acquire)) continue;
    turn_ = peer + 1;
    return peer;
  }
  return {};
}

// acquire: a rank writes nothing after it has departed, so a ring that is empty after this is so for good. Of
// a peer on another node the daemon says it in the ring, after the cells that have come.
bool RingQueue::departed(uint32_t peer, Direction direction) const {
  if (is_local(peer))
    return access_.segment.rank_state(local_of(peer)).departed.load(std::memory_order_acquire) != 0;
  const uint32_t ring = access_.layout().ring_index(direction, access_.local, peer);
  return access_.segment.ring(ring).ended.load(std::memory_order_acquire) != 0;
}

void RingQueue::fail_without(uint32_t peer, const Message& message, const char* done) {
  access_.fail(Code::kRankLost, static_cast<int32_t>(peer),
               "rank " + std::to_string(peer) + " departed from the group (class " +
                   access_.segment.header().group_class + ") without " + done + " message " +
                   std::to_string(message.number) + (done[0] == 's' ? " to rank " : " from rank ") +
                   std::to_string(access_.rank));
}

bool RingQueue::all_others_departed() const {
  const uint32_t ranks = access_.layout().ranks;
  if (ranks == 1) return false;
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer != access_.rank && !departed(peer, Direction::kIn)) return false;
  }
  return true;
}

// 1. Find a sender for the receive from any rank that comes first.
// 2. Move it, and the receives behind it up to the next one from any rank, into their streams.
bool RingQueue::match_some() {
  bool any = false;
  while (!unmatched_.empty()) {
    Unmatched& first = unmatched_.front();
    if (first.peer == ipc::kAnyRank) {
      const bool final = all_others_departed();  // before the rings are looked at
      const auto sender = next_sender();
      if (!sender) {
        if (final) {
          access_.fail(Code::kRankLost, -1,
                       "all other ranks have departed from the group (class " +
                           std::string(access_.segment.header().group_class) + "), and rank " +
                           std::to_string(access_.rank) + " receives from any rank");
        }
        break;
      }
      access_.recorder().end(first.message.record);
      first.peer = *sender;
    }
    append(Recorded::kReceive, first.peer, std::move(first.message));
    unmatched_.pop_front();
    any = true;
  }
  return any;
}

bool RingQueue::progress() {
  bool any = false;
  // One stream after the other, a ring at a time, until no stream moves: so a long message does not keep
  // the others waiting for more than the cells of one ring.
  for (bool moved = true; moved && !access_.segment.failed();) {
    moved = false;
    for (auto& [peer, stream] : sends_) moved |= send_some(peer, stream);
    moved |= match_some();
    for (auto& [peer, stream] : recvs_) moved |= recv_some(peer, stream);
    any |= moved;
  }
  // Cells that had arrived before the failure are still consumed, so that a receive whose data is here
  // succeeds.
  if (!access_.segment.failed()) return any;
  do {
    for (auto& [peer, stream] : recvs_) any |= recv_some(peer, stream);
  } while (match_some());
  return any;
}

// The rank is the only writer of the attention ring, and the daemon the only reader (ipc/segment.h,
// RankState). acquire on `tail` pairs with the daemon's release: an entry is overwritten only after it was
// read. If the ring is full, the flag makes the daemon look at all rings of this rank.
void RingQueue::call_attention(uint32_t ring) {
  RankState& rank_state = access_.rank_state();
  const uint64_t head = rank_state.attention_head.load(std::memory_order_relaxed);
  if (head - rank_state.attention_tail.load(std::memory_order_acquire) >= kAttentionRing) {
    // release: the daemon that clears the flag sees the cells that were written before.
    rank_state.attention_overflow.store(1, std::memory_order_release);
  } else {
    rank_state.attention[head % kAttentionRing] = ring;
    rank_state.attention_head.store(head + 1, std::memory_order_release);
  }
  access_.ring_daemon();
}

// For each cell:
// 1. See that there is room: head < tail + slots. acquire on `tail` pairs with the reader's release, so
//    the reader is done with the old cell.
// 2. Write header and payload.
// 3. Publish `head` with release.
//
// The peer is rung once for all cells. At the end, a peer that has departed without making room for the rest
// fails the group.
bool RingQueue::send_some(uint32_t peer, Stream& stream) {
  if (stream.messages.empty()) return false;
  const ipc::Layout& layout = access_.layout();
  const uint32_t index = layout.ring_index(Direction::kOut, access_.local, peer);
  MessageRing& ring = access_.segment.ring(index);
  // relaxed: this rank is the only writer.
  uint64_t head = ring.head.load(std::memory_order_relaxed);
  bool any = false;
  bool completed = false;
  while (!stream.messages.empty() && head < ring.tail.load(std::memory_order_acquire) + layout.slots) {
    Message& message = stream.messages.front();
    const uint64_t bytes = std::min(layout.cell_bytes, message.bytes - message.moved);
    std::byte* cell = access_.data(layout.cell(index, head));
    *reinterpret_cast<CellHeader*>(cell) = {message.number, message.bytes, message.moved, bytes};
    if (bytes != 0) std::memcpy(cell + sizeof(CellHeader), message.data + message.moved, bytes);
    message.moved += bytes;
    ring.head.store(++head, std::memory_order_release);
    any = true;
    access_.recorder().move(message.record, message.moved);
    // A message of 0 bytes passes here after its one empty cell.
    if (message.moved < message.bytes) continue;
    access_.recorder().end(message.record);
    message.operation->complete(Status::ok());
    stream.messages.pop_front();
    completed = true;
  }
  // The peer may wait for cells. Between nodes its daemon does the ringing.
  if (any && is_local(peer)) access_.segment.rank_state(local_of(peer)).doorbell.ring();
  if (any && !is_local(peer)) call_attention(index);
  // Another thread of this rank may wait for the operation.
  if (completed) access_.rank_state().doorbell.ring();
  // The rest of the message is not in the ring yet, so the peer has not received it.
  if (!stream.messages.empty() && peer != access_.rank && departed(peer, Direction::kOut))
    fail_without(peer, stream.messages.front(), "receiving");
  return any;
}

// For each cell:
// 1. See that there is one: tail < head. acquire on `head` pairs with the writer's release.
// 2. Check that the cell continues the message. A message to which it does not belong fails the group.
// 3. Copy the payload, and publish `tail` with release.
//
// The writer is rung once for all cells. At the end, a peer that has departed without sending the message
// fails the group.
bool RingQueue::recv_some(uint32_t peer, Stream& stream) {
  if (stream.messages.empty()) return false;
  const ipc::Layout& layout = access_.layout();
  const bool local = is_local(peer);
  const uint32_t index = incoming(peer);
  MessageRing& ring = access_.segment.ring(index);
  uint64_t tail = ring.tail.load(std::memory_order_relaxed);
  bool any = false;
  bool completed = false;
  while (!stream.messages.empty() && tail < ring.head.load(std::memory_order_acquire)) {
    Message& message = stream.messages.front();
    const std::byte* cell = access_.data(layout.cell(index, tail));
    // A copy of the header: on one node the peer could change it at any time. The checks below are for
    // faults, not for attacks, since ranks of a group trust each other.
    const CellHeader header = *reinterpret_cast<const CellHeader*>(cell);
    // The sizes of the two ends differ: a fault of the program.
    if (header.message_bytes != message.bytes) {
      access_.fail(Code::kMismatch, static_cast<int32_t>(peer),
                   "message " + std::to_string(message.number) + " from rank " + std::to_string(peer) +
                       " to rank " + std::to_string(access_.rank) + " (class " +
                       access_.segment.header().group_class + "): the sender sends " +
                       std::to_string(header.message_bytes) + " bytes, the receiver expects " +
                       std::to_string(message.bytes));
      return any;
    }
    // A cell that does not continue the message: a fault of HDT, or memory that was overwritten.
    if (header.message != message.number || header.offset != message.moved ||
        header.bytes > layout.cell_bytes || header.bytes > message.bytes - message.moved) {
      access_.fail(Code::kInternal, static_cast<int32_t>(peer),
                   "the ring from rank " + std::to_string(peer) + " to rank " + std::to_string(access_.rank) +
                       " holds a cell that does not continue message " + std::to_string(message.number));
      return any;
    }
    if (header.bytes != 0) std::memcpy(message.data + message.moved, cell + sizeof(CellHeader), header.bytes);
    message.moved += header.bytes;
    // release: the writer overwrites the cell only after the copy above.
    ring.tail.store(++tail, std::memory_order_release);
    any = true;
    access_.recorder().move(message.record, message.moved);
    if (message.moved < message.bytes) continue;
    access_.recorder().end(message.record);
    if (message.source != nullptr) *message.source = static_cast<int>(peer);
    message.operation->complete(Status::ok());
    stream.messages.pop_front();
    completed = true;
  }
  // The writer may wait for room.
  if (any && local) access_.segment.rank_state(local_of(peer)).doorbell.ring();
  if (any && !local) call_attention(index);
  if (completed) access_.rank_state().doorbell.ring();
  // The peer has departed, and the ring is empty. The departure is looked at first: the ring is final then. A
  // message to oneself cannot be missing this way.
  if (!stream.messages.empty() && peer != access_.rank && departed(peer, Direction::kIn) &&
      tail == ring.head.load(std::memory_order_acquire))
    fail_without(peer, stream.messages.front(), "sending");
  return any;
}

// Streams stay in the maps when they are empty.
bool RingQueue::empty() const {
  const auto idle = [](const auto& entry) { return entry.second.messages.empty(); };
  return unmatched_.empty() && std::all_of(sends_.begin(), sends_.end(), idle) &&
         std::all_of(recvs_.begin(), recvs_.end(), idle);
}

// Only the first message of each stream, and of those without one, is looked at: later ones were pushed
// later, and have later deadlines.
std::optional<RingQueue::Waiting> RingQueue::most_urgent() const {
  std::optional<Waiting> urgent;
  const auto look = [&](const std::map<uint32_t, Stream>& streams, const char* verb) {
    for (const auto& [peer, stream] : streams) {
      if (stream.messages.empty()) continue;
      const Message& message = stream.messages.front();
      if (urgent && urgent->operation->deadline.time_ns() <= message.operation->deadline.time_ns()) continue;
      urgent = Waiting{message.operation.get(),
                       "rank " + std::to_string(peer) + " has not " + verb + " message " +
                           std::to_string(message.number) + " (" + std::to_string(message.bytes) +
                           " bytes, " + std::to_string(message.moved) + " moved) " +
                           (verb[0] == 's' ? "to" : "from") + " rank " + std::to_string(access_.rank)};
    }
  };
  look(sends_, "received");
  look(recvs_, "sent");
  if (unmatched_.empty()) return urgent;
  const Message& first = unmatched_.front().message;
  if (urgent && urgent->operation->deadline.time_ns() <= first.operation->deadline.time_ns()) return urgent;
  return Waiting{first.operation.get(), "no rank has sent a message of " + std::to_string(first.bytes) +
                                            " bytes to rank " + std::to_string(access_.rank) +
                                            ", which receives from any rank"};
}

// No peer touches this rank's buffers: cells are copied by this rank. So the operations can end at once.
void RingQueue::fail_all(const Status& status) {
  for (; !unmatched_.empty(); unmatched_.pop_front()) {
    const auto& [peer, message] = unmatched_.front();
    if (peer == ipc::kAnyRank) access_.recorder().end(message.record, status.code());
    message.operation->complete(status);
  }
  for (auto* streams : {&sends_, &recvs_}) {
    for (auto& [peer, stream] : *streams) {
      for (auto& messages = stream.messages; !messages.empty(); messages.pop_front()) {
        access_.recorder().end(messages.front().record, status.code());
        messages.front().operation->complete(status);
      }
    }
  }
}

}  // namespace hdt::client
