// Carries cells of message rings between nodes. Both directions are driven by the local ranks: a rank
// that has written or consumed cells puts the ring's number into its attention ring, and wakes the
// engine.
#include "daemon/group/ring_forwarder.h"

#include <algorithm>

namespace hdt::daemon {

using ipc::CellHeader;
using ipc::Direction;
using ipc::kAttentionRing;
using ipc::Layout;
using ipc::MessageRing;
using ipc::RankState;

namespace {

// The width of the bits in MessageRing::landed: bits 16-63 hold n, the number of cells that came without a
// gap; bit i (0-15): cell n + i has come too. A node never has more cells under way than the ring has
// places, so 16 bits are enough.
constexpr uint32_t kLandedBits = 16;  // of MessageRing::landed
constexpr uint64_t kLandedMask = (uint64_t{1} << kLandedBits) - 1;
static_assert(ipc::kSlotsBetweenNodes <= kLandedBits);

}  // namespace

RingForwarder::RingForwarder(GroupContext& context) : context_(context) {}

// Reads the attention rings. A rank sets `attention_overflow` when its attention ring is full; then all
// its rings are looked at.
bool RingForwarder::progress() {
  bool any = false;
  const Layout& layout = context_.layout();
  for (uint32_t local = 0; local < layout.local_ranks; ++local) {
    RankState& rank_state = context_.segment.rank_state(local);
    uint64_t tail = rank_state.attention_tail.load(std::memory_order_relaxed);
    const uint64_t head = rank_state.attention_head.load(std::memory_order_acquire);
    // A head that jumps is foreign nonsense: look at no more than the ring holds.
    const uint64_t end = std::min(head, tail + kAttentionRing);
    for (; tail < end; ++tail) any |= look_at(rank_state.attention[tail % kAttentionRing]);
    rank_state.attention_tail.store(tail, std::memory_order_release);
    // acq_rel: what the rank wrote before it set the flag is seen in the rings that are looked at now.
    if (rank_state.attention_overflow.exchange(0, std::memory_order_acq_rel) != 0) {
      for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
        any |= look_at(layout.ring_index(Direction::kOut, local, rank));
        any |= look_at(layout.ring_index(Direction::kIn, local, rank));
      }
    }
  }
  return any;
}

// The number comes from a rank, so it may be any. Rings to ranks of this node never concern the engine.
bool RingForwarder::look_at(uint32_t number) {
  const Layout& layout = context_.layout();
  if (number >= 2 * layout.local_ranks * layout.ranks) return false;
  const uint32_t peer = number % layout.ranks;
  if (context_.order.node_of_rank[peer] == context_.me) return false;  // the ranks share the ring
  return number < layout.local_ranks * layout.ranks ? forward(number) : give_credit(number);
}

// A cell is handed over when the rank has written it (`head`), there is a place in the receiver's ring
// (`remote_tail`), and no more than `slots` cells are under way.
bool RingForwarder::forward(uint32_t number) {
  const Layout& layout = context_.layout();
  MessageRing& ring = context_.segment.ring(number);
  Outgoing& out = outgoing_[number];
  const uint32_t source = context_.local_ranks[number / layout.ranks];
  const uint32_t destination = number % layout.ranks;
  const uint32_t node = context_.order.node_of_rank[destination];
  // A suspended node gets its cells in resume().
  if (!context_.peers[node].open()) return false;
  const Layout& theirs = context_.peers[node].layout;
  // Ranks of a node are in the order of their local indexes by position, so the receiver's local index
  // follows from its position.
  const auto their_local =
      static_cast<uint32_t>(context_.order.position_of[destination] - context_.order.first_position[node]);
  const uint32_t their_ring = theirs.ring_index(Direction::kIn, their_local, source);
  // `head` is foreign: a ring cannot hold more cells than it has places.
  const uint64_t head =
      std::min(ring.head.load(std::memory_order_acquire), out.sent + context_.layout().slots);
  bool any = false;
  for (; out.next < head && out.next < out.remote_tail + context_.layout().slots; ++out.next) {
    if (out.next - out.sent < 32 && (out.sent_bits >> (out.next - out.sent) & 1) != 0)
      continue;  // it came before a restart
    const std::byte* cell = context_.segment.data() + layout.cell(number, out.next);
    // The cell's header is foreign: the length must fit the ring at both ends.
    const uint64_t payload = reinterpret_cast<const CellHeader*>(cell)->bytes;
    const size_t bytes = sizeof(CellHeader) + std::min({payload, layout.cell_bytes, theirs.cell_bytes});
    const WriteToken token{context_.group_index, WriteToken::Kind::kCell, number,
                           static_cast<uint32_t>(out.next % context_.layout().slots)};
    // The last argument is WriteRequest::until_arrived: the place in the sender's ring is free only when
    // the cell is in the receiver's segment, also for a small cell. Otherwise a crash of the receiver's
    // daemon could lose it.
    context_.write(node, {cell, bytes, context_.peers[node].region, theirs.cell(their_ring, out.next),
                          encode(CellFrame{context_.id, out.next, source, destination}), token.pack(), true});
    any = true;
  }
  return any;
}

// Acknowledgements may come in any order; the tail moves over those that came without a gap. Release: the
// rank that sees the new tail may write over the cells below it.
void RingForwarder::on_sent(const WriteToken& token) {
  Outgoing& out = outgoing_[token.number];
  // The token has the cell's number modulo the ring's length. Fewer cells than that are under way, so
  // the distance from `sent` is unique.
  const uint64_t ahead =
      (token.slot + context_.layout().slots - out.sent % context_.layout().slots) % context_.layout().slots;
  out.sent_bits |= 1U << ahead;
  while ((out.sent_bits & 1) != 0) {
    out.sent_bits >>= 1;
    ++out.sent;
  }
  // The sender may use these places again.
  context_.segment.ring(token.number).tail.store(out.sent, std::memory_order_release);
  context_.segment.rank_state(token.number / context_.layout().ranks).doorbell.ring();
  forward(token.number);
}

// The rank must be one of this node; EngineGroup has checked that for numbers from messages.
uint32_t RingForwarder::local_of(uint32_t rank) const {
  return static_cast<uint32_t>(context_.order.position_of[rank] - context_.order.first_position[context_.me]);
}

// Cells may land out of order. The receiving rank sees them through `head`, which covers only cells
// without a gap before them.
void RingForwarder::on_arrived(const CellFrame& frame) {
  const uint32_t local = local_of(frame.destination);
  const uint32_t number = context_.layout().ring_index(Direction::kIn, local, frame.source);
  MessageRing& ring = context_.segment.ring(number);
  const uint64_t landed = ring.landed.load(std::memory_order_relaxed);
  uint64_t head = landed >> kLandedBits;
  // The node wrote without credit, or wrote a cell twice.
  if (frame.index < head || frame.index >= incoming_[number].told + context_.layout().slots ||
      frame.index - head >= kLandedBits) {
    context_.fail(Code::kInternal, static_cast<int32_t>(frame.source),
                  "rank " + std::to_string(frame.source) + "'s node wrote a cell to rank " +
                      std::to_string(frame.destination) + " of " + context_.name() + " without credit");
    return;
  }
  uint64_t bits = (landed & kLandedMask) | uint64_t{1} << (frame.index - head);
  for (; (bits & 1) != 0; bits >>= 1) ++head;
  // `landed` first, then `head`: a successor takes `landed` for what has come, and what a rank may have
  // read must be in it.
  ring.landed.store(head << kLandedBits | bits, std::memory_order_release);
  ring.head.store(head, std::memory_order_release);
  end_if_complete(number);
  context_.segment.rank_state(local).doorbell.ring();
}

// `head` is final, as the rank has departed.
void RingForwarder::tell_ends(uint32_t local, uint32_t node) {
  const Layout& layout = context_.layout();
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    if (context_.order.node_of_rank[rank] != node) continue;
    const MessageRing& ring = context_.segment.ring(layout.ring_index(Direction::kOut, local, rank));
    const uint64_t head = ring.head.load(std::memory_order_acquire);
    if (head != 0) context_.send(node, RingEnded{context_.id, context_.local_ranks[local], rank, head});
  }
}

void RingForwarder::on_message(const RingEnded& note) {
  ends_[context_.layout().ring_index(Direction::kIn, local_of(note.destination), note.source)] = note.cells;
}

void RingForwarder::on_rank_departed(uint32_t rank) {
  const Layout& layout = context_.layout();
  departed_.insert(rank);
  for (uint32_t local = 0; local < layout.local_ranks; ++local) {
    end_if_complete(layout.ring_index(Direction::kIn, local, rank));
    context_.segment.ring(layout.ring_index(Direction::kOut, local, rank))
        .ended.store(1, std::memory_order_release);
  }
  context_.segment.ring_all();
}

// release: a rank that sees the end sees all cells before it.
void RingForwarder::end_if_complete(uint32_t number) {
  if (!departed_.contains(number % context_.layout().ranks)) return;
  const auto end = ends_.find(number);
  MessageRing& ring = context_.segment.ring(number);
  if (ring.head.load(std::memory_order_relaxed) >= (end == ends_.end() ? 0 : end->second))
    ring.ended.store(1, std::memory_order_release);
}

// A total of what the rank has consumed since the group was made; nothing is sent if it is no news.
bool RingForwarder::give_credit(uint32_t number) {
  const Layout& layout = context_.layout();
  MessageRing& ring = context_.segment.ring(number);
  Incoming& in = incoming_[number];
  // `tail` is foreign: a rank cannot have consumed what has not landed.
  const uint64_t tail =
      std::min(ring.tail.load(std::memory_order_acquire), ring.head.load(std::memory_order_relaxed));
  if (tail <= in.told) return false;
  in.told = tail;
  const uint32_t source = number % layout.ranks;
  const uint32_t local = number / layout.ranks - layout.local_ranks;
  context_.send(context_.order.node_of_rank[source],
                CellCredit{context_.id, source, context_.local_ranks[local], tail});
  return true;
}

// A total, so an old message that comes late changes nothing.
void RingForwarder::on_message(const CellCredit& note) {
  const uint32_t number =
      context_.layout().ring_index(Direction::kOut, local_of(note.source), note.destination);
  Outgoing& out = outgoing_[number];
  if (note.tail > out.next) return;  // nonsense: a cell that was not sent cannot be consumed
  out.remote_tail = std::max(out.remote_tail, note.tail);
  forward(number);
}

// Whether everything that local ranks have written is in the memory of the receivers' nodes; asked before
// this node leaves the group.
bool RingForwarder::drained() const {
  return std::all_of(outgoing_.begin(), outgoing_.end(), [this](const auto& entry) {
    const auto& [number, out] = entry;
    const GroupPeer& peer = context_.peers[node_of(number)];
    // An unreachable node gets nothing any more; a suspended one may come back.
    if (!peer.takes_part() || (peer.link == nullptr && !peer.suspended)) return true;
    // Cells without room stay where they are once the receiving rank has departed, as nobody makes room.
    // Two ranks that send each other more than the rings hold, and depart, would otherwise keep both
    // nodes waiting for ever.
    if (departed_.contains(number % context_.layout().ranks)) return out.sent >= out.next;
    return out.sent >= context_.segment.ring(number).head.load(std::memory_order_acquire);
  });
}

// Cells are under way that no link has reported as arrived yet.
bool RingForwarder::awaits_arrivals() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(),
                     [](const auto& entry) { return entry.second.sent < entry.second.next; });
}

// An outgoing ring goes on at its tail: what had arrived beyond that, the node will say (resume()). An
// incoming ring goes on with what has landed; the predecessor may have died before it published that as
// `head`.
void RingForwarder::go_on() {
  const Layout& layout = context_.layout();
  for (uint32_t local = 0; local < layout.local_ranks; ++local) {
    for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
      if (context_.order.node_of_rank[rank] == context_.me) continue;
      const uint32_t to = layout.ring_index(Direction::kOut, local, rank);
      const MessageRing& out = context_.segment.ring(to);
      if (out.head.load(std::memory_order_acquire) != 0) {
        const uint64_t sent = out.tail.load(std::memory_order_acquire);
        outgoing_[to] = {sent, sent, 0, 0};
      }
      const uint32_t from = layout.ring_index(Direction::kIn, local, rank);
      MessageRing& in = context_.segment.ring(from);
      const uint64_t landed = in.landed.load(std::memory_order_acquire);
      if (landed == 0) continue;
      const uint64_t head = landed >> kLandedBits;
      incoming_[from].told = std::min(head, in.tail.load(std::memory_order_acquire));
      if (head > in.head.load(std::memory_order_acquire)) in.head.store(head, std::memory_order_release);
    }
  }
  context_.segment.ring_all();
}

// The tail that is sent is never below the one sent before.
void RingForwarder::tell_state(uint32_t node) {
  const Layout& layout = context_.layout();
  for (auto& [number, in] : incoming_) {
    if (node_of(number) != node) continue;
    const MessageRing& ring = context_.segment.ring(number);
    const uint64_t landed = ring.landed.load(std::memory_order_relaxed);
    in.told = std::max(in.told, std::min(landed >> kLandedBits, ring.tail.load(std::memory_order_acquire)));
    const uint32_t local = number / layout.ranks - layout.local_ranks;
    context_.send(
        node, RingState{context_.id, number % layout.ranks, context_.local_ranks[local], landed, in.told});
  }
}

// 1. Note what the node reports of each ring; a ring that it does not name has got nothing yet.
void RingForwarder::resume(uint32_t node) {
  const Layout& layout = context_.layout();
  std::unordered_map<uint32_t, const RingState*> told;
  for (const RingState& state : context_.peers[node].their_rings) {
    told[layout.ring_index(Direction::kOut, local_of(state.source), state.destination)] = &state;
  }
  // 2. Each ring goes on from there. A node that has less than it had acknowledged, or more than the
  //    rank has written, has lost its memory: the group fails.
  for (auto& [number, out] : outgoing_) {
    if (node_of(number) != node) continue;
    const auto state = told.find(number);
    const uint64_t landed = state == told.end() ? 0 : state->second->landed;
    const uint64_t came = landed >> kLandedBits;
    MessageRing& ring = context_.segment.ring(number);
    if (came < out.sent || came > ring.head.load(std::memory_order_acquire)) {
      context_.fail(
          Code::kInternal, static_cast<int32_t>(number % layout.ranks),
          "node " + context_.nodes[node].name + " does not know what it had of a ring of " + context_.name());
      return;
    }
    // 3. Everything after that is written again, but for single cells that came out of order
    //    (`sent_bits`).
    out.next = out.sent = came;
    out.sent_bits = static_cast<uint32_t>(landed & kLandedMask);
    if (state != told.end()) out.remote_tail = std::max(out.remote_tail, std::min(came, state->second->tail));
    ring.tail.store(came, std::memory_order_release);
    context_.segment.rank_state(number / layout.ranks).doorbell.ring();
    forward(number);
  }
}

}  // namespace hdt::daemon
