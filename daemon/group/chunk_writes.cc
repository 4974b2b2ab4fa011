// The writes of a ChunkRunner to other nodes: when a write may be made, where it goes, and what is kept
// of it for a successor.
//
// A write goes through these stages. The executor asks for it (write()). A small payload is copied into
// the journal. The write is made at once if the node is open, has granted credit and, for an output that
// may be in place, has sent where that is (try_write()). Otherwise it is held, and tried again when one
// of these messages comes (write_held()).
#include <algorithm>

#include "daemon/group/chunk_runner.h"
#include "daemon/group/chunk_slot.h"
#include "ipc/buffer_use.h"

namespace hdt::daemon {

using collectives::Area;

namespace {

// Where the area of a chunk's slot begins, in bytes from the start of the receiver's data part.
uint64_t area_offset(const ipc::Layout& layout, uint64_t chunk, Area area) {
  switch (area) {
    case Area::kInput:
      return layout.input(chunk);
    case Area::kOutput:
      return layout.output(chunk);
    case Area::kScratch:
      break;
  }
  return layout.scratch(chunk);
}

}  // namespace

// One entry for each node and link is enough: links count writes in order, and arrived(n) covers all
// before n.
void ChunkRunner::note_write(Slot& slot, uint32_t node, const transport::Link* link, uint64_t number) {
  for (Slot::LastWrite& last : slot.last_writes) {
    if (last.node != node || last.link != link) continue;
    last.number = number;
    return;
  }
  slot.last_writes.push_back({node, link, number});
}

// A slot may be used for its next chunk when this is true: then nothing that was written from it can be
// asked for again, not even by the successor of the receiver's daemon.
bool ChunkRunner::settled(const Slot& slot) const {
  return slot.held == 0 &&
         std::all_of(slot.last_writes.begin(), slot.last_writes.end(), [&](const auto& last) {
           // A credit above chunk + slots says that the receiver has freed its slot of this chunk, so it
           // had all payloads. Otherwise the link knows whether the write has arrived.
           return credit_[last.node].granted_to_us > slot.chunk + slots_.size() ||
                  (last.link != nullptr && last.link->arrived(last.number));
         });
}

// Called by the slot's executor, from inside its own progress. True: the data is copied, and the executor
// may overwrite it at once; on_sent() does not follow. False: the data must stay as it is until on_sent(),
// or the group has failed.
bool ChunkRunner::write(Slot& slot, HeldWrite write) {
  ipc::SentWrite& what = write.what;
  const ActiveCall& active = *call_of(what.chunk);
  // 1. Complete the description. It must be enough for a successor to make the write again: the call
  //    tells whether the output may be in place, `in_output` where the payload goes in a user's buffer.
  what.sequence = active.sequence;
  what.call = active.call;
  if (what.to == Area::kOutput && ipc::may_be_direct(active.call, context_.layout())) {
    const size_t width = collectives::type_size(active.call.type);
    const ipc::Chunk part = active.plan.chunk(what.chunk - active.first_chunk);
    what.in_output = user_index(active.call, part, context_.order, what.offset / width) * width;
  }
  // 2. A predecessor had begun this chunk. Data that has come needs no write. Data that the journal has is
  //    written from there when the node is back (on_message(Resume)).
  if (slot.goes_on &&
      (credit_[what.peer].has(what.chunk, what.tag) || journal_.has_kept(what.chunk, what.peer, what.tag))) {
    return true;
  }
  // 3. A small payload: the link reports it sent as soon as it is copied, and the executor may then
  //    overwrite it. So the journal's copy is what is sent, and can be sent again.
  const bool small = what.bytes <= transport::kCopiedWriteBytes;
  if (small) {
    const std::byte* copy = journal_.keep(what, write.data);
    if (copy == nullptr) {
      context_.fail(Code::kInternal, -1,
                    "chunk " + std::to_string(what.chunk) + " of " + context_.name() +
                        " has more small writes than are kept");
      return false;
    }
    write = kept_write(what, copy);
  }
  submit(write);
  return small;
}

// The token names no step, since the executor knows that the data is copied.
ChunkRunner::HeldWrite ChunkRunner::kept_write(const ipc::SentWrite& what, const std::byte* data) const {
  return {what, data, {context_.group_index, WriteToken::Kind::kKept, 0, 0}};
}

// A held small write keeps its slot's journal entry in use (settled()).
void ChunkRunner::submit(const HeldWrite& write) {
  if (try_write(write)) return;
  if (write.kept()) ++slots_[write.what.chunk % slots_.size()]->held;
  credit_[write.what.peer].held.push_back(write);
}

// Makes the write if it may be made now. False: the node is not open, has not granted the chunk, or has
// not sent where its output is.
bool ChunkRunner::try_write(const HeldWrite& write) {
  const ipc::SentWrite& what = write.what;
  const uint32_t node = what.peer;
  PeerCredit& credit = credit_[node];
  GroupPeer& peer = context_.peers[node];
  if (!peer.open() || what.chunk >= credit.granted_to_us) return false;
  // To the area in the node's slot ...
  transport::WriteRequest request{write.data,
                                  what.bytes,
                                  peer.region,
                                  area_offset(peer.layout, what.chunk, what.to),
                                  encode(ChunkFrame{context_.id, what.chunk, context_.me, what.tag}),
                                  write.token.pack()};
  request.offset += what.offset;
  const transport::Link* link = peer.link;
  // ... or to the user's buffer there. The region's key belongs to the backend of the link on which the
  // OutputMessage came, so the write takes that link.
  if (what.to == Area::kOutput && ipc::may_be_direct(what.call, context_.layout())) {
    const auto note = credit.outputs.find(what.sequence);
    if (note == credit.outputs.end()) return false;
    const auto& [output, over] = note->second;
    if (!(output.call == what.call)) return false;  // The group is about to fail over it.
    if (output.direct != 0) {
      request.region = output.region;
      request.offset = output.offset + what.in_output;
      link = over;
    }
  }
  context_.write_over(node, *link, request);
  if (write.kept()) note_write(*slots_[what.chunk % slots_.size()], node, link, link->written());
  return true;
}

// Tries all held writes, also behind one that must wait: they may need different messages.
void ChunkRunner::write_held(uint32_t node) {
  std::erase_if(credit_[node].held, [&](const HeldWrite& write) {
    if (!try_write(write)) return false;
    if (write.kept()) --slots_[write.what.chunk % slots_.size()]->held;
    return true;
  });
}

// An OutputMessage is needed until its call is finished here, and as long as a held write goes to that
// output. After a restart the peer sends the notes again for what had not come.
void ChunkRunner::drop_outputs(PeerCredit& credit) const {
  std::erase_if(credit.outputs, [&](const auto& entry) {
    return entry.first < first_unfinished() &&
           std::none_of(credit.held.begin(), credit.held.end(),
                        [&](const HeldWrite& write) { return write.what.sequence == entry.first; });
  });
}

}  // namespace hdt::daemon
