#include "libclient/collective_queue.h"

#include <algorithm>

namespace hdt::client {

using session::Board;
using session::kCallRing;
using session::kSlots;

void CollectiveQueue::push(const session::Call& call, const void* send, void* recv,
                           std::shared_ptr<Operation> operation) {
  const session::Plan plan(call, access_.layout());
  calls_.push_back({next_sequence_++, call, plan, next_piece_, static_cast<const std::byte*>(send),
                    static_cast<std::byte*>(recv), std::move(operation)});
  next_piece_ += plan.pieces();
  publish_calls();
}

// The ring of calls holds kCallRing: a call is published when the one in its place is complete.
void CollectiveQueue::publish_calls() {
  Board& board = access_.board();
  const uint64_t complete = calls_.empty() ? next_sequence_ : calls_.front().sequence;
  const uint64_t limit = std::min(next_sequence_, complete + kCallRing);
  if (published_ == limit) return;
  for (; published_ < limit; ++published_) {
    board.calls[published_ % kCallRing] = calls_[published_ - complete].call;
  }
  board.entered.store(published_, std::memory_order_release);
  access_.ring_peers();
  access_.ring_daemon();
}

CollectiveQueue::Entry* CollectiveQueue::entry_at(const Cursor& cursor) {
  if (calls_.empty()) return nullptr;
  const uint64_t index = cursor.sequence - calls_.front().sequence;
  return index < calls_.size() && cursor.sequence < published_ ? &calls_[index] : nullptr;
}

void CollectiveQueue::advance(Cursor& cursor, const Entry& entry) {
  if (++cursor.piece == entry.first_piece + entry.plan.pieces()) ++cursor.sequence;
}

bool CollectiveQueue::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved = static_cast<int>(stage()) | static_cast<int>(reduce()) | static_cast<int>(take());
    if (!moved) break;
    any = true;
  }
  return any;
}

SlotPiece CollectiveQueue::slot_piece(const Entry& entry, uint64_t piece) const {
  return {entry.call, entry.plan.piece(piece - entry.first_piece), piece, entry.send, entry.recv};
}

bool CollectiveQueue::stage() {
  const Entry* entry = entry_at(stage_);
  if (entry == nullptr || stage_.piece >= least(access_, &Board::done) + kSlots) return false;
  client::stage(access_, slot_piece(*entry, stage_.piece));
  access_.board().staged.store(stage_.piece + 1, std::memory_order_release);
  advance(stage_, *entry);
  if (access_.layout().local_ranks > 1) access_.ring_peers();
  return true;
}

// True when all local ranks have made the same call; looks once per call.
bool CollectiveQueue::compare_calls(const Entry& entry) {
  if (compared_ > entry.sequence) return true;
  if (least(access_, &Board::entered) <= entry.sequence) {
    (void)fail_if_left(access_, entry.sequence);
    return false;
  }
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const session::Call other = access_.segment.board(i).calls[entry.sequence % kCallRing];
    if (other == entry.call) continue;
    fail_mismatch(access_, entry.sequence, entry.call, i, other);
    return false;
  }
  compared_ = entry.sequence + 1;
  return true;
}

bool CollectiveQueue::reduce() {
  const Entry* entry = entry_at(reduce_);
  if (entry == nullptr || !compare_calls(*entry)) return false;
  const bool combines = collectives::reduces(entry->call.what) && access_.layout().local_ranks > 1;
  const uint64_t staged = combines ? least(access_, &Board::staged)
                                   : access_.board().staged.load(std::memory_order_relaxed);
  if (reduce_.piece >= staged) return false;
  client::combine(access_, slot_piece(*entry, reduce_.piece));
  access_.board().reduced.store(reduce_.piece + 1, std::memory_order_release);
  advance(reduce_, *entry);
  access_.ring_daemon();
  return true;
}

bool CollectiveQueue::take() {
  const Entry* entry = entry_at(take_);
  if (entry == nullptr || take_.piece >= reduce_.piece ||
      take_.piece >= access_.segment.header().exchanged.load(std::memory_order_acquire)) {
    return false;
  }
  client::take(access_, slot_piece(*entry, take_.piece));
  access_.board().done.store(take_.piece + 1, std::memory_order_release);
  advance(take_, *entry);
  if (access_.layout().local_ranks > 1) access_.ring_peers();
  access_.ring_daemon();  // a slot is free: credit for the other nodes
  if (take_.sequence > entry->sequence) {
    entry->operation->complete(Status::ok());
    calls_.pop_front();
    publish_calls();
    access_.board().doorbell.ring();  // another thread of this rank may wait for it
  }
  return true;
}

void CollectiveQueue::fail_all(const Status& status) {
  for (Entry& entry : calls_) entry.operation->complete(status);
  calls_.clear();
}

}  // namespace hdt::client
