#include "libclient/collective_queue.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/kernels.h"

namespace hdt::client {

using collectives::Collective;
using collectives::reduces;
using collectives::type_size;
using session::Board;
using session::by_blocks;
using session::kCallRing;
using session::kSlots;

namespace {

// Shares of a piece start at multiples of this many elements, so that ranks do not write to the same cache line.
constexpr uint64_t kShareUnit = 64;

template <typename Counter>
uint64_t least(const NodeAccess& access, Counter Board::*counter) {
  uint64_t value = UINT64_MAX;
  for (uint32_t i = 0; i < access.layout().local_ranks; ++i) {
    value = std::min<uint64_t>(value, (access.segment.board(i).*counter).load(std::memory_order_acquire));
  }
  return value;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

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
  if (!access_.one_node()) access_.ring_daemon();
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

// Where this rank's contribution to a reduction goes: alone on its node, straight to where the sum would.
std::byte* CollectiveQueue::contribution(const Entry& entry, uint64_t piece) const {
  const session::Layout& layout = access_.layout();
  if (!reduces(entry.call.what)) return access_.data(layout.output(piece));
  if (layout.local_ranks > 1) return access_.data(layout.staging(piece, access_.local));
  return access_.data(access_.one_node() ? layout.output(piece) : layout.input(piece));
}

bool CollectiveQueue::stage() {
  const Entry* entry = entry_at(stage_);
  if (entry == nullptr || stage_.piece >= least(access_, &Board::done) + kSlots) return false;
  const session::Call& call = entry->call;
  const auto part = entry->plan.piece(stage_.piece - entry->first_piece);
  const size_t width = type_size(call.type);
  std::byte* to = contribution(*entry, stage_.piece);
  switch (call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce: copy(to, entry->send + part.offset * width, part.elements * width); break;
    case Collective::kReduceScatter:
      for (uint64_t position = 0; position < access_.order.rank_at.size(); ++position) {
        const uint64_t block = access_.order.rank_at[position] * call.count + part.offset;
        copy(to + position * part.elements * width, entry->send + block * width, part.elements * width);
      }
      break;
    case Collective::kAllGather:
      copy(to + access_.order.position_of[access_.rank] * part.elements * width, entry->send + part.offset * width,
           part.elements * width);
      break;
    case Collective::kBroadcast:
      if (static_cast<uint32_t>(call.root) == access_.rank) {
        copy(to, entry->send + part.offset * width, part.elements * width);
      }
      break;
    case Collective::kBarrier: break;
  }
  access_.board().staged.store(stage_.piece + 1, std::memory_order_release);
  advance(stage_, *entry);
  if (access_.layout().local_ranks > 1) access_.ring_peers();
  return true;
}

// True when all local ranks have made the same call; looks once per call.
bool CollectiveQueue::compare_calls(const Entry& entry) {
  if (compared_ > entry.sequence) return true;
  if (least(access_, &Board::entered) <= entry.sequence) {
    (void)somebody_left(entry);
    return false;
  }
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const session::Call other = access_.segment.board(i).calls[entry.sequence % kCallRing];
    if (other == entry.call) continue;
    access_.fail(Code::kMismatch, static_cast<int32_t>(access_.rank_of(i)),
                 "call " + std::to_string(entry.sequence) + " of this group (class " +
                     access_.segment.header().group_class + "): rank " + std::to_string(access_.rank) + " calls " +
                     session::describe(entry.call) + ", rank " + std::to_string(access_.rank_of(i)) + " calls " +
                     session::describe(other));
    return false;
  }
  compared_ = entry.sequence + 1;
  return true;
}

bool CollectiveQueue::somebody_left(const Entry& entry) {
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const Board& board = access_.segment.board(i);
    if (board.left.load(std::memory_order_acquire) == 0) continue;
    const uint64_t entered = board.entered.load(std::memory_order_acquire);
    if (entered > entry.sequence) continue;
    access_.fail(Code::kRankLost, static_cast<int32_t>(access_.rank_of(i)),
                 "rank " + std::to_string(access_.rank_of(i)) + " left the group (class " +
                     access_.segment.header().group_class + ") after " + std::to_string(entered) +
                     " collective calls; call " + std::to_string(entry.sequence) + " needs it");
    return true;
  }
  return false;
}

bool CollectiveQueue::reduce() {
  const Entry* entry = entry_at(reduce_);
  if (entry == nullptr || !compare_calls(*entry)) return false;
  const session::Call& call = entry->call;
  const session::Layout& layout = access_.layout();
  const bool combines = reduces(call.what) && layout.local_ranks > 1;
  const uint64_t staged = combines ? least(access_, &Board::staged)
                                   : access_.board().staged.load(std::memory_order_relaxed);
  if (reduce_.piece >= staged) return false;
  if (combines) {
    const auto part = entry->plan.piece(reduce_.piece - entry->first_piece);
    const uint64_t total = part.elements * (by_blocks(call.what) ? layout.ranks : 1);
    const uint64_t share = ((total + layout.local_ranks - 1) / layout.local_ranks + kShareUnit - 1) / kShareUnit *
                           kShareUnit;
    const uint64_t first = std::min(total, access_.local * share);
    const uint64_t count = std::min(share, total - first);
    const size_t width = type_size(call.type);
    std::vector<const void*> sources;
    for (uint32_t i = 0; i < layout.local_ranks; ++i) {
      sources.push_back(access_.data(layout.staging(reduce_.piece, i)) + first * width);
    }
    const uint64_t target = access_.one_node() ? layout.output(reduce_.piece) : layout.input(reduce_.piece);
    if (count != 0) collectives::reduce(call.type, call.op, sources, access_.data(target) + first * width, count);
  }
  access_.board().reduced.store(reduce_.piece + 1, std::memory_order_release);
  advance(reduce_, *entry);
  if (!access_.one_node()) {
    access_.ring_daemon();
  } else if (layout.local_ranks > 1) {
    access_.ring_peers();
  }
  return true;
}

bool CollectiveQueue::take() {
  const Entry* entry = entry_at(take_);
  if (entry == nullptr || take_.piece >= reduce_.piece) return false;
  const uint64_t ready = access_.one_node() ? least(access_, &Board::reduced)
                                            : access_.segment.header().exchanged.load(std::memory_order_acquire);
  if (take_.piece >= ready) return false;
  const session::Call& call = entry->call;
  const auto part = entry->plan.piece(take_.piece - entry->first_piece);
  const size_t width = type_size(call.type);
  const size_t bytes = part.elements * width;
  const std::byte* from = access_.data(access_.layout().output(take_.piece));
  const auto deliver = [&](std::byte* to, const std::byte* result) {
    if (call.op == collectives::ReduceOp::kAvg) {
      if (part.elements != 0) {
        collectives::copy_divided(call.type, result, to, part.elements, static_cast<int>(access_.layout().ranks));
      }
    } else {
      copy(to, result, bytes);
    }
  };
  switch (call.what) {
    case Collective::kAllReduce: deliver(entry->recv + part.offset * width, from); break;
    case Collective::kReduce:
      if (static_cast<uint32_t>(call.root) == access_.rank) deliver(entry->recv + part.offset * width, from);
      break;
    case Collective::kReduceScatter:
      deliver(entry->recv + part.offset * width, from + access_.order.position_of[access_.rank] * bytes);
      break;
    case Collective::kAllGather:
      for (uint64_t position = 0; position < access_.order.rank_at.size(); ++position) {
        const uint64_t block = access_.order.rank_at[position] * call.count + part.offset;
        copy(entry->recv + block * width, from + position * bytes, bytes);
      }
      break;
    case Collective::kBroadcast:
      if (entry->recv != entry->send) copy(entry->recv + part.offset * width, from, bytes);
      break;
    case Collective::kBarrier: break;
  }
  access_.board().done.store(take_.piece + 1, std::memory_order_release);
  advance(take_, *entry);
  if (access_.layout().local_ranks > 1) access_.ring_peers();
  if (!access_.one_node()) access_.ring_daemon();  // a slot is free: credit for the other nodes
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
