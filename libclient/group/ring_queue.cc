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

// The queue starts nothing here; the communicator calls progress() afterwards, under the same lock.
void RingQueue::push(Recorded kind, uint32_t peer, std::byte* data, uint64_t bytes,
                     std::shared_ptr<Operation> operation) {
  Stream& stream = (kind == Recorded::kSend ? sends_ : recvs_)[peer];
  const uint64_t record = access_.recorder().begin(kind, peer, stream.next_number, bytes);
  stream.messages.push_back({data, bytes, stream.next_number++, std::move(operation), record});
}

void RingQueue::push_send(uint32_t peer, const void* data, uint64_t bytes,
                          std::shared_ptr<Operation> operation) {
  push(Recorded::kSend, peer, static_cast<std::byte*>(const_cast<void*>(data)), bytes, std::move(operation));
}

void RingQueue::push_recv(uint32_t peer, void* data, uint64_t bytes, std::shared_ptr<Operation> operation) {
  push(Recorded::kReceive, peer, static_cast<std::byte*>(data), bytes, std::move(operation));
}

// Positions of a node are contiguous, in the order of local indices.
uint32_t RingQueue::local_of(uint32_t peer) const {
  return static_cast<uint32_t>(access_.order.position_of[peer] - access_.order.first_position[access_.node]);
}

bool RingQueue::progress() {
  bool any = false;
  // One stream after the other, a ring at a time, until no stream moves: so a long message does not keep
  // the others waiting for more than the cells of one ring.
  for (bool moved = true; moved && !access_.segment.failed();) {
    moved = false;
    for (auto& [peer, stream] : sends_) moved |= send_some(peer, stream);
    for (auto& [peer, stream] : recvs_) moved |= recv_some(peer, stream);
    any |= moved;
  }
  // Cells that had arrived before the failure are still consumed, so that a receive whose data is here
  // succeeds.
  for (auto& [peer, stream] : recvs_) any |= access_.segment.failed() && recv_some(peer, stream);
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
// The peer is rung once for all cells.
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
  if (!any) return false;
  // The peer may wait for cells. Between nodes its daemon does the ringing.
  if (is_local(peer)) {
    access_.segment.rank_state(local_of(peer)).doorbell.ring();
  } else {
    call_attention(index);
  }
  // Another thread of this rank may wait for the operation.
  if (completed) access_.rank_state().doorbell.ring();
  return true;
}

// For each cell:
// 1. See that there is one: tail < head. acquire on `head` pairs with the writer's release.
// 2. Check that the cell continues the message. A message to which it does not belong fails the group.
// 3. Copy the payload, and publish `tail` with release.
//
// The writer is rung once for all cells. At the end, a peer on this node that has departed without
// sending the message fails the group.
bool RingQueue::recv_some(uint32_t peer, Stream& stream) {
  if (stream.messages.empty()) return false;
  const ipc::Layout& layout = access_.layout();
  const bool local = is_local(peer);
  // The sender's outgoing ring, if both ranks share it; otherwise this rank's own incoming ring.
  const uint32_t index = local ? layout.ring_index(Direction::kOut, local_of(peer), access_.rank)
                               : layout.ring_index(Direction::kIn, access_.local, peer);
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
    message.operation->complete(Status::ok());
    stream.messages.pop_front();
    completed = true;
  }
  // The writer may wait for room.
  if (any && local) access_.segment.rank_state(local_of(peer)).doorbell.ring();
  if (any && !local) call_attention(index);
  if (completed) access_.rank_state().doorbell.ring();
  // The peer has departed, and the ring is empty. `left` is loaded first: the peer writes nothing after
  // it has departed, so an empty ring is then final. A peer on another node is not found out here; the
  // daemon does not know which messages are expected.
  const auto gone = [&] {
    return access_.segment.rank_state(local_of(peer)).left.load(std::memory_order_acquire) != 0 &&
           tail == ring.head.load(std::memory_order_acquire);
  };
  // A message to oneself cannot be missing this way.
  if (local && !stream.messages.empty() && peer != access_.rank && gone()) {
    access_.fail(Code::kRankLost, static_cast<int32_t>(peer),
                 "rank " + std::to_string(peer) + " left the group (class " +
                     access_.segment.header().group_class + ") without sending message " +
                     std::to_string(stream.messages.front().number) + " to rank " +
                     std::to_string(access_.rank));
  }
  return any;
}

// Streams stay in the maps when they are empty.
bool RingQueue::empty() const {
  const auto idle = [](const auto& entry) { return entry.second.messages.empty(); };
  return std::all_of(sends_.begin(), sends_.end(), idle) && std::all_of(recvs_.begin(), recvs_.end(), idle);
}

// Only the first message of each stream is looked at: later ones were pushed later, and have later
// deadlines.
std::optional<RingQueue::Waiting> RingQueue::most_urgent() const {
  std::optional<Waiting> urgent;
  const auto look = [&](const std::map<uint32_t, Stream>& streams, const char* verb) {
    for (const auto& [peer, stream] : streams) {
      if (stream.messages.empty()) continue;
      const Message& message = stream.messages.front();
      if (urgent && urgent->operation->deadline.time_ns() <= message.operation->deadline.time_ns()) continue;
      urgent = Waiting{message.operation.get(), peer,
                       "rank " + std::to_string(peer) + " has not " + verb + " message " +
                           std::to_string(message.number) + " (" + std::to_string(message.bytes) +
                           " bytes, " + std::to_string(message.moved) + " moved) " +
                           (verb[0] == 's' ? "to" : "from") + " rank " + std::to_string(access_.rank)};
    }
  };
  look(sends_, "received");
  look(recvs_, "sent");
  return urgent;
}

// No peer touches this rank's buffers: cells are copied by this rank. So the operations can end at once.
void RingQueue::fail_all(const Status& status) {
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
