// Carries cells of message rings between nodes. Both directions are driven by the local ranks: a rank
// that has written or consumed cells puts the ring's number into its attention ring, and wakes the
// engine.
#include "daemon/group/channel_forwarder.h"

#include <algorithm>

namespace hdt::daemon {

using session::Board;
using session::Channel;
using session::ChunkHeader;
using session::Direction;
using session::kAttentionRing;
using session::Layout;

namespace {

// The width of the bits in Channel::landed: bits 16-63 hold n, the number of cells that came without a
// gap; bit i (0-15): cell n + i has come too. A node never has more cells under way than the ring has
// places, so 16 bits are enough.
constexpr uint32_t kLandedBits = 16;  // of Channel::landed
constexpr uint64_t kLandedMask = (uint64_t{1} << kLandedBits) - 1;
static_assert(session::kSlotsBetweenNodes <= kLandedBits);

}  // namespace

ChannelForwarder::ChannelForwarder(GroupContext& context) : context_(context) {}

// Reads the attention rings. A rank sets `attention_overflow` when its attention ring is full; then all
// its rings are looked at.
bool ChannelForwarder::progress() {
  bool any = false;
  const Layout& layout = context_.layout();
  for (uint32_t local = 0; local < layout.local_ranks; ++local) {
    Board& board = context_.segment.board(local);
    uint64_t tail = board.attention_tail.load(std::memory_order_relaxed);
    const uint64_t head = board.attention_head.load(std::memory_order_acquire);
    // A head that jumps is foreign nonsense: look at no more than the ring holds.
    const uint64_t end = std::min(head, tail + kAttentionRing);
    for (; tail < end; ++tail) any |= look_at(board.attention[tail % kAttentionRing]);
    board.attention_tail.store(tail, std::memory_order_release);
    // acq_rel: what the rank wrote before it set the flag is seen in the rings that are looked at now.
    if (board.attention_overflow.exchange(0, std::memory_order_acq_rel) != 0) {
      for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
        any |= look_at(layout.channel_index(Direction::kOut, local, rank));
        any |= look_at(layout.channel_index(Direction::kIn, local, rank));
      }
    }
  }
  return any;
}

bool ChannelForwarder::look_at(uint32_t channel) {
  const Layout& layout = context_.layout();
  if (channel >= 2 * layout.local_ranks * layout.ranks) return false;
  const uint32_t peer = channel % layout.ranks;
  if (context_.order.node_of_rank[peer] == context_.me) return false;  // the ranks share the ring
  return channel < layout.local_ranks * layout.ranks ? forward(channel) : give_credit(channel);
}

// A cell is handed over when the rank has written it (`head`), there is a place in the receiver's ring
// (`remote_tail`), and no more than `slots` cells are under way.
bool ChannelForwarder::forward(uint32_t channel) {
  const Layout& layout = context_.layout();
  Channel& ring = context_.segment.channel(channel);
  Outgoing& out = outgoing_[channel];
  const uint32_t source = context_.local_ranks[channel / layout.ranks];
  const uint32_t destination = channel % layout.ranks;
  const uint32_t node = context_.order.node_of_rank[destination];
  // A suspended node gets its cells in resume().
  if (!context_.peers[node].open()) return false;
  const Layout& theirs = context_.peers[node].layout;
  // Ranks of a node are in the order of their local indexes by position, so the receiver's local index
  // follows from its position.
  const auto their_local =
      static_cast<uint32_t>(context_.order.position_of[destination] - context_.order.first_position[node]);
  const uint32_t their_channel = theirs.channel_index(Direction::kIn, their_local, source);
  // `head` is foreign: a ring cannot hold more cells than it has places.
  const uint64_t head =
      std::min(ring.head.load(std::memory_order_acquire), out.sent + context_.layout().slots);
  bool any = false;
  for (; out.next < head && out.next < out.remote_tail + context_.layout().slots; ++out.next) {
    if (out.next - out.sent < 32 && (out.sent_bits >> (out.next - out.sent) & 1) != 0)
      continue;  // it came before a restart
    const std::byte* chunk = context_.segment.data() + layout.chunk(channel, out.next);
    // The cell's header is foreign: the length must fit the ring at both ends.
    const uint64_t payload = reinterpret_cast<const ChunkHeader*>(chunk)->bytes;
    const size_t bytes = sizeof(ChunkHeader) + std::min({payload, layout.chunk_bytes, theirs.chunk_bytes});
    const WriteToken token{context_.group_slot, WriteToken::Kind::kChunk, channel,
                           static_cast<uint32_t>(out.next % context_.layout().slots)};
    // The last argument is WriteRequest::until_arrived: the place in the sender's ring is free only when
    // the cell is in the receiver's segment, also for a small cell. Otherwise a crash of the receiver's
    // daemon could lose it.
    context_.write(node,
                   {chunk, bytes, context_.peers[node].region, theirs.chunk(their_channel, out.next),
                    encode(ChunkFrame{context_.id, out.next, source, destination}), token.pack(), true});
    any = true;
  }
  return any;
}

void ChannelForwarder::on_sent(const WriteToken& token) {
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
  context_.segment.channel(token.number).tail.store(out.sent, std::memory_order_release);
  context_.segment.board(token.number / context_.layout().ranks).doorbell.ring();
  forward(token.number);
}

uint32_t ChannelForwarder::local_of(uint32_t rank) const {
  return static_cast<uint32_t>(context_.order.position_of[rank] - context_.order.first_position[context_.me]);
}

// Cells may land out of order. The receiving rank sees them through `head`, which covers only cells
// without a gap before them.
void ChannelForwarder::on_arrived(const ChunkFrame& frame) {
  const uint32_t local = local_of(frame.destination);
  const uint32_t channel = context_.layout().channel_index(Direction::kIn, local, frame.source);
  Channel& ring = context_.segment.channel(channel);
  const uint64_t landed = ring.landed.load(std::memory_order_relaxed);
  uint64_t head = landed >> kLandedBits;
  // The node wrote without credit, or wrote a cell twice.
  if (frame.index < head || frame.index >= incoming_[channel].told + context_.layout().slots ||
      frame.index - head >= kLandedBits) {
    context_.fail(Code::kInternal, static_cast<int32_t>(frame.source),
                  "rank " + std::to_string(frame.source) + "'s node wrote a chunk to rank " +
                      std::to_string(frame.destination) + " of " + context_.name() + " without credit");
    return;
  }
  uint64_t bits = (landed & kLandedMask) | uint64_t{1} << (frame.index - head);
  for (; (bits & 1) != 0; bits >>= 1) ++head;
  // `landed` first, then `head`: a successor takes `landed` for what has come, and what a rank may have
  // read must be in it.
  ring.landed.store(head << kLandedBits | bits, std::memory_order_release);
  ring.head.store(head, std::memory_order_release);
  context_.segment.board(local).doorbell.ring();
}

bool ChannelForwarder::give_credit(uint32_t channel) {
  const Layout& layout = context_.layout();
  Channel& ring = context_.segment.channel(channel);
  Incoming& in = incoming_[channel];
  // `tail` is foreign: a rank cannot have consumed what has not landed.
  const uint64_t tail =
      std::min(ring.tail.load(std::memory_order_acquire), ring.head.load(std::memory_order_relaxed));
  if (tail <= in.told) return false;
  in.told = tail;
  const uint32_t source = channel % layout.ranks;
  const uint32_t local = channel / layout.ranks - layout.local_ranks;
  context_.send(context_.order.node_of_rank[source],
                ChunkCredit{context_.id, source, context_.local_ranks[local], tail});
  return true;
}

void ChannelForwarder::on_note(const ChunkCredit& note) {
  const uint32_t channel =
      context_.layout().channel_index(Direction::kOut, local_of(note.source), note.destination);
  Outgoing& out = outgoing_[channel];
  if (note.tail > out.next) return;  // nonsense: a cell that was not sent cannot be consumed
  out.remote_tail = std::max(out.remote_tail, note.tail);
  forward(channel);
}

bool ChannelForwarder::drained() const {
  return std::all_of(outgoing_.begin(), outgoing_.end(), [this](const auto& entry) {
    const auto& [channel, out] = entry;
    const GroupPeer& peer = context_.peers[node_of(channel)];
    // An unreachable node gets nothing any more; a suspended one may come back.
    if (peer.left || (peer.link == nullptr && !peer.away)) return true;
    // Cells without room stay where they are once the receiving rank has departed, as nobody makes room.
    // Two ranks that send each other more than the rings hold, and depart, would otherwise keep both
    // nodes waiting for ever.
    if (left_.contains(channel % context_.layout().ranks)) return out.sent >= out.next;
    return out.sent >= context_.segment.channel(channel).head.load(std::memory_order_acquire);
  });
}

bool ChannelForwarder::awaits_arrivals() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(),
                     [](const auto& entry) { return entry.second.sent < entry.second.next; });
}

// An outgoing ring goes on at its tail: what had arrived beyond that, the node will say (resume()). An
// incoming ring goes on with what has landed; the predecessor may have died before it published that as
// `head`.
void ChannelForwarder::go_on() {
  const Layout& layout = context_.layout();
  for (uint32_t local = 0; local < layout.local_ranks; ++local) {
    for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
      if (context_.order.node_of_rank[rank] == context_.me) continue;
      const uint32_t to = layout.channel_index(Direction::kOut, local, rank);
      const Channel& out = context_.segment.channel(to);
      if (out.head.load(std::memory_order_acquire) != 0) {
        const uint64_t sent = out.tail.load(std::memory_order_acquire);
        outgoing_[to] = {sent, sent, 0, 0};
      }
      const uint32_t from = layout.channel_index(Direction::kIn, local, rank);
      Channel& in = context_.segment.channel(from);
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
void ChannelForwarder::tell_state(uint32_t node) {
  const Layout& layout = context_.layout();
  for (auto& [channel, in] : incoming_) {
    if (node_of(channel) != node) continue;
    const Channel& ring = context_.segment.channel(channel);
    const uint64_t landed = ring.landed.load(std::memory_order_relaxed);
    in.told = std::max(in.told, std::min(landed >> kLandedBits, ring.tail.load(std::memory_order_acquire)));
    const uint32_t local = channel / layout.ranks - layout.local_ranks;
    context_.send(node, ChannelState{context_.id, channel % layout.ranks, context_.local_ranks[local], landed,
                                     in.told});
  }
}

// 1. What the node says of each ring; a ring that it does not name has got nothing yet.
void ChannelForwarder::resume(uint32_t node) {
  const Layout& layout = context_.layout();
  std::unordered_map<uint32_t, const ChannelState*> told;
  for (const ChannelState& state : context_.peers[node].their_channels) {
    told[layout.channel_index(Direction::kOut, local_of(state.source), state.destination)] = &state;
  }
  // 2. Each ring goes on from there. A node that has less than it had acknowledged, or more than the
  //    rank has written, has lost its memory: the group fails.
  for (auto& [channel, out] : outgoing_) {
    if (node_of(channel) != node) continue;
    const auto state = told.find(channel);
    const uint64_t landed = state == told.end() ? 0 : state->second->landed;
    const uint64_t came = landed >> kLandedBits;
    Channel& ring = context_.segment.channel(channel);
    if (came < out.sent || came > ring.head.load(std::memory_order_acquire)) {
      context_.fail(Code::kInternal, static_cast<int32_t>(channel % layout.ranks),
                    "node " + context_.nodes[node].name + " does not know what it had of a channel of " +
                        context_.name());
      return;
    }
    // 3. Everything after that is written again, but for single cells that came out of order
    //    (`sent_bits`).
    out.next = out.sent = came;
    out.sent_bits = static_cast<uint32_t>(landed & kLandedMask);
    if (state != told.end()) out.remote_tail = std::max(out.remote_tail, std::min(came, state->second->tail));
    ring.tail.store(came, std::memory_order_release);
    context_.segment.board(channel / layout.ranks).doorbell.ring();
    forward(channel);
  }
}

}  // namespace hdt::daemon
