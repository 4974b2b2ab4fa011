// The work of a ChunkRunner when the link to another node goes down with a daemon, and when the two are
// connected again (docs/design/restart.md). Both ends first send what has come: ChunkState, then Resume.
// At the other's Resume each end goes through everything that it has asked to be written there, and
// writes what has not come.
#include <algorithm>

#include "daemon/group/chunk_runner.h"
#include "daemon/group/chunk_slot.h"

namespace hdt::daemon {

// The group waits for a successor or fails; in both cases nothing more comes over the link.
void ChunkRunner::on_link_down(uint32_t node, const transport::Link& link) {
  for (const auto& slot : slots_) {
    for (Slot::LastWrite& last : slot->last_writes) {
      if (last.link == &link) last.link = nullptr;  // whether it has arrived is not known any more
    }
  }
  // The keys in these notes are of the daemon that has ended. Its successor sends new ones.
  std::erase_if(credit_[node].outputs, [&](const auto& entry) { return entry.second.link == &link; });
}

// The group has moved away from the link, and everything that was written on it has arrived.
void ChunkRunner::on_link_dropped(const transport::Link& link) {
  for (const auto& slot : slots_) {
    std::erase_if(slot->last_writes, [&](const auto& last) { return last.link == &link; });
  }
}

// Everything that is sent here comes from the journal, which outlives this daemon: a successor tells the
// same.
void ChunkRunner::tell_state(uint32_t node) {
  // 1. Send what has come of the chunks that may be under way. All payloads of earlier chunks have come, as
  //    `exchanged` in the Resume says.
  for (uint64_t chunk = exchanged_; chunk < exchanged_ + slots_.size(); ++chunk) {
    ChunkState state{context_.id, chunk, context_.me, {}};
    const auto tell = [&] {
      if (!state.tags.empty()) context_.send(node, state);
      state.tags.clear();
    };
    journal_.for_arrivals(chunk, [&](uint32_t from, uint32_t tag) {
      if (from != node) return;
      state.tags.push_back(tag);
      if (state.tags.size() == kMaxTags) tell();
    });
    tell();
  }
  // 2. Where our outputs are, with keys for the new link.
  for (const ActiveCall& call : calls_) {
    if (call.output_note) tell_output(node, *call.output_note, call.output_memory);
  }
  // 3. Credit and the numbers of chunks and calls. This is the last message: the peer begins to write
  //    when it has it.
  PeerCredit& credit = credit_[node];
  credit.granted_by_us = std::max(credit.granted_by_us, freed() + slots_.size());
  context_.send(node, Resume{context_.id, context_.me, exchanged_, credit.granted_by_us, first_unfinished()});
}

// Offsets are compared so that no sum can overflow.
bool ChunkRunner::is_sound(const ipc::SentWrite& what) const {
  const ipc::Layout& layout = context_.peers[what.peer].layout;
  if (what.to > collectives::Area::kScratch || !ipc::validate(what.call, layout.ranks).empty()) return false;
  const uint64_t area = what.to == collectives::Area::kScratch ? layout.scratch_bytes : layout.chunk_bytes;
  const uint64_t output = ipc::result_bytes(what.call, layout.ranks);
  return what.bytes <= area && what.offset <= area - what.bytes &&
         (what.in_output == 0 || (what.bytes <= output && what.in_output <= output - what.bytes));
}

// The node has sent what it has. From here on it may be written to.
void ChunkRunner::on_message(const Resume& note) {
  PeerCredit& credit = credit_[note.from];
  // 1. Keep what it has, and its credit.
  credit.granted_to_us = std::max(credit.granted_to_us, note.credit);
  credit.came_below = note.exchanged;
  credit.came = std::move(context_.peers[note.from].their_chunks);
  // 2. Forget the writes that are held or unsettled: every one that is still needed is found again in
  //    steps 3 and 4.
  for (const HeldWrite& write : std::exchange(credit.held, {})) {
    if (write.kept()) --slots_[write.what.chunk % slots_.size()]->held;
  }
  for (const auto& slot : slots_) {
    std::erase_if(slot->last_writes, [&](const auto& last) { return last.node == note.from; });
  }
  // 3. Small payloads, from the journal.
  journal_.for_sent([&](const ipc::SentWrite& what, const std::byte* data) {
    if (what.peer == note.from && !credit.has(what.chunk, what.tag) && is_sound(what))
      submit(kept_write(what, data));
  });
  // 4. Large payloads, from where they are: the executor knows which of its writes are not complete.
  for (const auto& slot : slots_) {
    if (slot->executor == nullptr) continue;
    slot->executor->write_again(static_cast<int>(note.from),
                                [&](uint32_t tag) { return credit.has(slot->chunk, tag); });
    slot->executor->advance();
  }
  drop_outputs(credit);
  // 5. If it is the next node in the ring: the calls that it may not have heard of, for the comparison.
  //    Calls that a predecessor noted but that this daemon has not read yet follow when they are read.
  if (note.from != (context_.me + 1) % context_.nodes.size()) return;
  journal_.for_told_calls(note.finished, [&](uint64_t sequence, const ipc::Call& call) {
    if (sequence < next_call_)
      context_.send(note.from, CallMessage{context_.id, context_.me, sequence, call});
  });
}

}  // namespace hdt::daemon
