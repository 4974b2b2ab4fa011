// internode_queue.cc: see internode_queue.h for the three cursors. Each counter of this rank's state
// is stored with release after the work that it speaks of; other ranks and the engine load it with
// acquire. After each step those are rung that may wait for it: the other local ranks by their
// doorbells, the engine by its wake page.
#include "libclient/internode/internode_queue.h"

#include <algorithm>
#include <cstring>

#include "collectives/kernels.h"
#include "libclient/common/copy_bytes.h"

namespace hdt::client {

using collectives::Collective;
using collectives::reduces;
using ipc::BufferUse;
using ipc::kCallRing;
using ipc::RankState;

// The call gets its sequence number and its chunks' numbers here, which are the same on all ranks, as
// all make the same calls. If the buffers cannot be placed (the daemon does not answer, a limit is
// reached), the group fails: the other ranks expect this call.
void InternodeQueue::push(const ipc::Call& call, const void* send, void* recv,
                          std::shared_ptr<Operation> operation) {
  const ipc::Partition plan(call, access_.layout());
  Entry entry{next_sequence_,
              call,
              plan,
              next_chunk_,
              static_cast<const std::byte*>(send),
              static_cast<std::byte*>(recv),
              std::move(operation),
              {}};
  if (const Status status = place_buffers(entry); !status.is_ok()) {
    access_.fail(status.code(), static_cast<int32_t>(access_.rank), status.message());
    entry.operation->complete(status);
    return;
  }
  entry.record = access_.recorder().begin(call, next_sequence_);
  ++next_sequence_;
  calls_.push_back(std::move(entry));
  next_chunk_ += plan.chunks();
  publish_calls();
}

// Only buffers that the daemon would use are looked for, as the first look for an allocation asks it.
Status InternodeQueue::place_buffers(Entry& entry) const {
  const ipc::Call& call = entry.call;
  const ipc::Layout& layout = access_.layout();
  // 1. Find what would be used in place, if both buffers were in memory of hdtMemAlloc.
  const ipc::CallBuffers wanted = ipc::buffer_use(call, layout, access_.rank, {true, true});
  if (wanted.send == BufferUse::kInPlace) {
    const auto place = locate_(entry.send, ipc::contribution_bytes(call, layout.ranks));
    if (!place.is_ok()) return place.status();
    entry.where.send_memory = place.value().memory;
    entry.where.send = place.value().offset;
  }
  if (wanted.recv == BufferUse::kInPlace) {
    const auto place = locate_(entry.recv, ipc::result_bytes(call, layout.ranks));
    if (!place.is_ok()) return place.status();
    entry.where.recv_memory = place.value().memory;
    entry.where.recv = place.value().offset;
  }
  // 2. Find what is used, with the buffers as they are. The daemon comes to the same from the memories in
  //    `where`.
  const uint64_t own_block = call.count * collectives::type_size(call.type);
  const std::byte* its_place =
      call.what == Collective::kAllGather ? entry.recv + access_.rank * own_block : entry.recv;
  entry.use = ipc::buffer_use(call, layout, access_.rank,
                              {.send_shared = entry.where.send_memory != 0,
                               .recv_shared = entry.where.recv_memory != 0,
                               .at_its_place = entry.send == its_place});
  return Status::ok();
}

// The copy goes chunk by chunk, so that the daemon sends the first chunks meanwhile, and finds them in
// the caches.
void InternodeQueue::place(const SlotChunk& chunk) const {
  const size_t width = collectives::type_size(chunk.call.type);
  const uint64_t own = access_.rank * chunk.call.count + chunk.part.offset;
  copy_bytes(chunk.recv + own * width, chunk.send + chunk.part.offset * width, chunk.part.elements * width);
}

// Completes the recvbuf when nothing is copied out of the slots. The daemon has put a sum
// there: an average is divided. The root of a broadcast copies its own data, which the daemon has sent from
// the sendbuf.
void InternodeQueue::copy_out_in_place(const Entry& entry) const {
  const ipc::Call& call = entry.call;
  if (entry.use.recv == BufferUse::kInPlace && call.op == collectives::ReduceOp::kAvg && reduces(call.what)) {
    collectives::copy_divided(call.type, entry.recv, entry.recv, call.count,
                              static_cast<int>(access_.layout().ranks));
  }
  if (entry.use.recv == BufferUse::kOwnCopy) {
    std::memcpy(entry.recv, entry.send, call.count * collectives::type_size(call.type));
  }
}

// The ring of calls holds kCallRing entries: a call is published when the one in its place is complete,
// which implies that everyone has read that one. `entered` covers the entries with release.
void InternodeQueue::publish_calls() {
  RankState& rank_state = access_.rank_state();
  // Calls below are complete, so calls_[0] is call `complete`.
  const uint64_t complete = calls_.empty() ? next_sequence_ : calls_.front().sequence;
  const uint64_t limit = std::min(next_sequence_, complete + kCallRing);
  if (published_ == limit) return;
  for (; published_ < limit; ++published_) {
    const Entry& entry = calls_[published_ - complete];
    rank_state.calls[published_ % kCallRing] = {entry.call, entry.where};
  }
  rank_state.entered.store(published_, std::memory_order_release);
  access_.ring_peers();
  access_.ring_daemon();
}

// A call that is not published is not worked on: the other ranks could not compare it.
InternodeQueue::Entry* InternodeQueue::entry_at(const Cursor& cursor) {
  if (calls_.empty()) return nullptr;
  const uint64_t index = cursor.sequence - calls_.front().sequence;
  return index < calls_.size() && cursor.sequence < published_ ? &calls_[index] : nullptr;
}

void InternodeQueue::advance(Cursor& cursor, const Entry& entry) {
  if (++cursor.chunk == entry.first_chunk + entry.plan.chunks()) ++cursor.sequence;
}

void InternodeQueue::advance_to_end(Cursor& cursor, const Entry& entry) {
  cursor.chunk = entry.first_chunk + entry.plan.chunks();
  ++cursor.sequence;
}

// The bitwise `|` runs all three stages in each turn.
bool InternodeQueue::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved =
        static_cast<int>(copy_in()) | static_cast<int>(reduce()) | static_cast<int>(copy_out());
    if (!moved) break;
    any = true;
  }
  // Chunks that had been exchanged before the failure are complete, and their slots are used by nobody
  // else. So a call succeeds if all of its chunks had come.
  while (access_.segment.failed() && copy_out()) any = true;
  return any;
}

SlotChunk InternodeQueue::slot_chunk(const Entry& entry, uint64_t chunk) const {
  return {entry.call, entry.plan.chunk(chunk - entry.first_chunk), chunk, entry.send, entry.recv};
}

// Three cases: an allgather in place, whose chunks are copied to the recvbuf; a call whose data is in place,
// which needs nothing; and the normal copy into the slot.
bool InternodeQueue::copy_in() {
  const Entry* entry = entry_at(copy_in_);
  if (entry != nullptr && entry->use.send == BufferUse::kOwnCopy) {
    const uint64_t exchanged = access_.segment.header().exchanged.load(std::memory_order_acquire);
    // Ahead of the exchange by as many chunks as there are slots, so that what is copied is sent from
    // the caches.
    if (copy_in_.chunk >= exchanged + access_.layout().slots) return false;
    place(slot_chunk(*entry, copy_in_.chunk));
    access_.rank_state().staged.store(copy_in_.chunk + 1, std::memory_order_release);
    advance(copy_in_, *entry);
    return true;
  }
  if (entry != nullptr && entry->use.source_in_place()) {
    // The daemon reads the buffer itself.
    advance_to_end(copy_in_, *entry);
    access_.rank_state().staged.store(copy_in_.chunk, std::memory_order_release);
    return true;
  }
  // A slot is free when every local rank has copied out the chunk that used it before.
  if (entry == nullptr || copy_in_.chunk >= least(access_, &RankState::done) + access_.layout().slots)
    return false;
  if (entry->use.send == BufferUse::kStaged) client::copy_in(access_, slot_chunk(*entry, copy_in_.chunk));
  access_.rank_state().staged.store(copy_in_.chunk + 1, std::memory_order_release);
  advance(copy_in_, *entry);
  if (access_.layout().local_ranks > 1) access_.ring_peers();
  return true;
}

// Looks once for each call: `compared_` remembers the result. The entry of another rank is valid, as
// that rank cannot publish the call in its place before this one is complete.
bool InternodeQueue::compare_calls(const Entry& entry) {
  if (compared_ > entry.sequence) return true;
  if (least(access_, &RankState::entered) <= entry.sequence) {
    // A rank that has not made the call may have departed.
    (void)fail_if_departed(access_, entry.sequence);
    return false;
  }
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const ipc::Call other = access_.segment.rank_state(i).calls[entry.sequence % kCallRing].call;
    if (other == entry.call) continue;
    fail_mismatch(access_, entry.sequence, entry.call, i, other);
    return false;
  }
  compared_ = entry.sequence + 1;
  access_.recorder().start(entry.record);
  return true;
}

bool InternodeQueue::reduce() {
  const Entry* entry = entry_at(reduce_);
  if (entry == nullptr || !compare_calls(*entry)) return false;
  // A contribution in place needs no combining. The engine may have looked at the call between its
  // publication and now, when an allgather's block was not ready, so it is rung again.
  if (entry->use.source_in_place() && entry->use.send != BufferUse::kOwnCopy &&
      reduce_.sequence < copy_in_.sequence) {
    advance_to_end(reduce_, *entry);
    access_.rank_state().reduced.store(reduce_.chunk, std::memory_order_release);
    access_.ring_daemon();
    return true;
  }
  const bool combines = reduces(entry->call.what) && access_.layout().local_ranks > 1;
  // If contributions are combined, all local ranks must have staged the chunk. Otherwise only this
  // rank's own copy counts.
  const uint64_t staged = combines ? least(access_, &RankState::staged)
                                   : access_.rank_state().staged.load(std::memory_order_relaxed);
  if (reduce_.chunk >= staged) return false;
  client::reduce(access_, slot_chunk(*entry, reduce_.chunk));
  access_.rank_state().reduced.store(reduce_.chunk + 1, std::memory_order_release);
  advance(reduce_, *entry);
  access_.ring_daemon();
  return true;
}

// 1. Wait for the exchange: of the chunk, if slots are involved; of the whole call, if everything is in
//    place.
// 2. Copy the result out, or finish it in place.
// 3. Count `done` up, which frees the slot here and becomes credit for the other nodes.
// 4. After the last chunk, complete the operation.
bool InternodeQueue::copy_out() {
  const Entry* entry = entry_at(copy_out_);
  if (entry == nullptr || copy_out_.chunk >= reduce_.chunk) return false;
  const uint64_t exchanged = access_.segment.header().exchanged.load(std::memory_order_acquire);
  // Chunk by chunk: a slot that holds only the contribution has to become free as well.
  const bool copies = entry->use.recv == BufferUse::kCopiedOut;
  if (entry->use.holds_slots()) {
    if (copy_out_.chunk >= exchanged) return false;
    if (copies) client::copy_out(access_, slot_chunk(*entry, copy_out_.chunk));
    access_.rank_state().done.store(copy_out_.chunk + 1, std::memory_order_release);
    advance(copy_out_, *entry);
    if (!copies && copy_out_.sequence > entry->sequence) copy_out_in_place(*entry);
    if (access_.layout().local_ranks > 1) access_.ring_peers();
  } else {
    if (exchanged < entry->first_chunk + entry->plan.chunks()) return false;
    copy_out_in_place(*entry);
    advance_to_end(copy_out_, *entry);
    access_.rank_state().done.store(copy_out_.chunk, std::memory_order_release);
  }
  // A slot is free, which the engine grants to the other nodes as credit.
  access_.ring_daemon();
  if (copy_out_.sequence > entry->sequence) {
    access_.recorder().end(entry->record);
    count_buffers(*entry);
    // The entry is removed right after this: nothing may refer to it.
    entry->operation->complete(Status::ok());
    calls_.pop_front();
    // A place in the ring of calls is free.
    publish_calls();
    // Another thread of this rank may wait for the operation.
    access_.rank_state().doorbell.ring();
  }
  return true;
}

void InternodeQueue::count_buffers(const Entry& entry) const {
  const auto sizes = ipc::buffer_sizes(entry.call, access_.layout().ranks, access_.rank);
  const auto copied = [](BufferUse use) {
    return use == BufferUse::kStaged || use == BufferUse::kCopiedOut || use == BufferUse::kOwnCopy;
  };
  access_.count_buffers(sizes.send + sizes.recv, (copied(entry.use.send) ? sizes.send : 0) +
                                                     (copied(entry.use.recv) ? sizes.recv : 0));
}

void InternodeQueue::fail_all(const Status& status) {
  for (; !calls_.empty(); calls_.pop_front()) {
    access_.recorder().end(calls_.front().record, status.code());
    calls_.front().operation->complete(status);
  }
}

}  // namespace hdt::client
