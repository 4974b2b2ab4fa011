// What a PieceRunner writes to other nodes: when it may, where it goes, and what is kept of it for a
// successor.
#include <algorithm>

#include "daemon/group/piece_runner.h"
#include "daemon/group/piece_slot.h"

namespace hdt::daemon {

using collectives::Area;

namespace {

uint64_t area_offset(const session::Layout& layout, uint64_t piece, Area area) {
  switch (area) {
    case Area::kInput:
      return layout.input(piece);
    case Area::kOutput:
      return layout.output(piece);
    case Area::kScratch:
      break;
  }
  return layout.scratch(piece);
}

}  // namespace

void PieceRunner::note_write(Slot& slot, uint32_t node, const transport::Link* link, uint64_t number) {
  for (Slot::LastWrite& last : slot.last_writes) {
    if (last.node != node || last.link != link) continue;
    last.number = number;
    return;
  }
  slot.last_writes.push_back({node, link, number});
}

bool PieceRunner::settled(const Slot& slot) const {
  return slot.held == 0 &&
         std::all_of(slot.last_writes.begin(), slot.last_writes.end(), [&](const auto& last) {
           // The receiver has freed its slot of the piece; or has said that it has come.
           return credit_[last.node].granted_to_us > slot.piece + slots_.size() ||
                  (last.link != nullptr && last.link->arrived(last.number));
         });
}

bool PieceRunner::write(Slot& slot, HeldWrite write) {
  session::SentWrite& what = write.what;
  const ActiveCall& active = *call_of(what.piece);
  what.sequence = active.sequence;
  what.call = active.call;
  if (what.to == Area::kOutput && session::may_be_direct(active.call, context_.layout())) {
    const size_t width = collectives::type_size(active.call.type);
    const session::Piece part = active.plan.piece(what.piece - active.first_piece);
    what.in_output = user_index(active.call, part, context_.order, what.offset / width) * width;
  }
  // Of a piece that a predecessor has begun: what has come there, and what is kept: that is written when the
  // node is back.
  if (slot.goes_on &&
      (credit_[what.peer].has(what.piece, what.tag) || journal_.has_kept(what.piece, what.peer, what.tag))) {
    return true;
  }
  const bool small = what.bytes <= transport::kCopiedWriteBytes;
  if (small) {
    const std::byte* copy = journal_.keep(what, write.data);
    if (copy == nullptr) {
      context_.fail(Code::kInternal, -1,
                    "piece " + std::to_string(what.piece) + " of " + context_.name() +
                        " has more small writes than are kept");
      return false;
    }
    write = kept_write(what, copy);
  }
  issue(write);
  return small;
}

PieceRunner::HeldWrite PieceRunner::kept_write(const session::SentWrite& what, const std::byte* data) const {
  return {what, data, {context_.group_slot, WriteToken::Kind::kKept, 0, 0}};
}

void PieceRunner::issue(const HeldWrite& write) {
  if (try_write(write)) return;
  if (write.kept()) ++slots_[write.what.piece % slots_.size()]->held;
  credit_[write.what.peer].held.push_back(write);
}

// False: not now.
bool PieceRunner::try_write(const HeldWrite& write) {
  const session::SentWrite& what = write.what;
  const uint32_t node = what.peer;
  PeerCredit& credit = credit_[node];
  GroupPeer& peer = context_.peers[node];
  if (!peer.open() || what.piece >= credit.granted_to_us) return false;
  transport::WriteRequest request{write.data,
                                  what.bytes,
                                  peer.region,
                                  area_offset(peer.layout, what.piece, what.to),
                                  encode(PieceFrame{context_.id, what.piece, context_.me, what.tag}),
                                  write.token.pack()};
  request.offset += what.offset;
  const transport::Link* link = peer.link;
  if (what.to == Area::kOutput && session::may_be_direct(what.call, context_.layout())) {
    const auto note = credit.outputs.find(what.sequence);
    if (note == credit.outputs.end()) return false;
    const auto& [output, over] = note->second;
    if (!(output.call == what.call)) return false;  // the group is about to fail over it
    if (output.direct != 0) {
      request.region = output.region;
      request.offset = output.offset + what.in_output;
      link = over;
    }
  }
  context_.write_over(node, *link, request);
  if (write.kept()) note_write(*slots_[what.piece % slots_.size()], node, link, link->written());
  return true;
}

void PieceRunner::write_held(uint32_t node) {
  std::erase_if(credit_[node].held, [&](const HeldWrite& write) {
    if (!try_write(write)) return false;
    if (write.kept()) --slots_[write.what.piece % slots_.size()]->held;
    return true;
  });
}

// Of calls that are finished here they are told again after a restart, for what had not come.
void PieceRunner::drop_outputs(PeerCredit& credit) const {
  std::erase_if(credit.outputs, [&](const auto& entry) {
    return entry.first < first_unfinished() &&
           std::none_of(credit.held.begin(), credit.held.end(),
                        [&](const HeldWrite& write) { return write.what.sequence == entry.first; });
  });
}

}  // namespace hdt::daemon
