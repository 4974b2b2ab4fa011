#include "daemon/piece_runner.h"

#include <algorithm>

namespace hdt::daemon {

using collectives::Area;
using session::Call;
using session::kCallRing;
using session::kSlots;

namespace {

// A peer can be ahead of us by what its own ranks may have under way, and no more.
constexpr uint64_t kMaxAhead = 2 * kCallRing;
// More payloads per piece than any schedule has: beyond it a peer is broken.
constexpr size_t kMaxEarly = 4096;

uint64_t area_offset(const session::Layout& layout, uint64_t piece, Area area) {
  switch (area) {
    case Area::kInput: return layout.input(piece);
    case Area::kOutput: return layout.output(piece);
    case Area::kScratch: break;
  }
  return layout.scratch(piece);
}

}  // namespace

// A slot's piece under way: the executor's way to the links.
class PieceRunner::Slot : public collectives::Port {
 public:
  Slot(PieceRunner& runner, uint32_t index) : runner_(runner), index_(index) {}

  void write(int peer, uint32_t tag, const void* data, size_t bytes, Area to, uint64_t offset, size_t step) override {
    const auto node = static_cast<uint32_t>(peer);
    GroupContext& context = runner_.context_;
    const HeldWrite write{piece, data, bytes, area_offset(context.peers[node].layout, piece, to) + offset,
                          encode(PieceFrame{context.id, piece, context.me, tag}),
                          {context.group_slot, WriteToken::Kind::kPiece, static_cast<uint32_t>(step), index_}};
    PeerCredit& credit = runner_.credit_[node];
    if (piece < credit.granted_to_us) {
      context.write(node, write.data, write.bytes, write.offset, write.header, write.token);
    } else {
      credit.held.push_back(write);
    }
  }

  uint64_t piece = 0;
  std::unique_ptr<collectives::Executor> executor;
  std::vector<std::pair<uint32_t, uint32_t>> early;  // (node, tag) that landed before the start

 private:
  PieceRunner& runner_;
  uint32_t index_;
};

PieceRunner::PieceRunner(GroupContext& context) : context_(context), credit_(context.nodes.size()) {
  for (uint32_t i = 0; i < kSlots; ++i) slots_[i] = std::make_unique<Slot>(*this, i);
}

PieceRunner::~PieceRunner() = default;

bool PieceRunner::progress() {
  bool any = read_calls();
  while (launch()) any = true;
  while (publish()) any = true;
  grant();
  return any;
}

bool PieceRunner::read_calls() {
  uint64_t entered = UINT64_MAX;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    entered = std::min(entered, context_.segment.board(i).entered.load(std::memory_order_acquire));
  }
  bool any = false;
  while (next_call_ < entered && calls_.size() < kCallRing) {
    if (!accept_call(next_call_)) return any;
    ++next_call_;
    any = true;
  }
  if (!calls_.empty()) check_left(calls_.back().sequence);
  return any;
}

// Copies the call of every local rank before looking at it; false when the group has failed over it.
bool PieceRunner::accept_call(uint64_t sequence) {
  const Call call = context_.segment.board(0).calls[sequence % kCallRing];
  for (uint32_t i = 1; i < context_.layout().local_ranks; ++i) {
    const Call other = context_.segment.board(i).calls[sequence % kCallRing];
    if (other == call) continue;
    context_.fail(Code::kMismatch, static_cast<int32_t>(context_.local_ranks[i]),
                  "call " + std::to_string(sequence) + " of " + context_.name() + ": rank " +
                      std::to_string(context_.local_ranks[0]) + " calls " + session::describe(call) + ", rank " +
                      std::to_string(context_.local_ranks[i]) + " calls " + session::describe(other));
    return false;
  }
  if (const std::string wrong = session::validate(call, context_.layout().ranks); !wrong.empty()) {
    context_.fail(Code::kInvalidArgument, static_cast<int32_t>(context_.local_ranks[0]),
                  "call " + std::to_string(sequence) + " of " + context_.name() + ": " + wrong);
    return false;
  }
  const uint64_t first = calls_.empty() ? next_piece_ : calls_.back().first_piece + calls_.back().plan.pieces();
  calls_.push_back({sequence, call, session::Plan(call, context_.layout()), first});
  const auto next_node = static_cast<uint32_t>((context_.me + 1) % context_.nodes.size());
  context_.send(next_node, CallNote{context_.id, context_.me, sequence, call});
  entered_.emplace(sequence, call);
  compare(sequence);
  return true;
}

bool PieceRunner::launch() {
  const auto covers = [this](const ActiveCall& c) { return next_piece_ < c.first_piece + c.plan.pieces(); };
  const auto call = std::find_if(calls_.begin(), calls_.end(), covers);
  if (call == calls_.end() || slots_[next_piece_ % kSlots]->executor != nullptr) return false;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    if (context_.segment.board(i).reduced.load(std::memory_order_acquire) <= next_piece_) return false;
  }
  start(*call, next_piece_++);
  return true;
}

void PieceRunner::start(const ActiveCall& active, uint64_t piece) {
  Slot& slot = *slots_[piece % kSlots];
  const session::Layout& layout = context_.layout();
  const collectives::Problem problem =
      problem_of(active.call, active.plan.piece(piece - active.first_piece), context_.order, context_.me);
  const uint64_t scratch_limit = layout.scratch_bytes / collectives::type_size(active.call.type);
  auto schedule = make_schedule(select_algorithm(problem, active.call.type, scratch_limit), problem);
  for (PeerCredit& credit : credit_) credit.sends_to_us = false;
  for (size_t i = 0;; ++i) {
    const auto step = schedule->step(i);
    if (!step) break;
    if (step->kind == collectives::StepKind::kRecv || step->kind == collectives::StepKind::kRecvReduce) {
      credit_[static_cast<size_t>(step->peer)].sends_to_us = true;
    }
  }
  std::byte* data = context_.segment.data();
  slot.piece = piece;
  slot.executor = std::make_unique<collectives::Executor>(
      std::move(schedule), active.call.type, active.call.op,
      collectives::SlotMemory{data + layout.input(piece), data + layout.output(piece), data + layout.scratch(piece)},
      slot);
  grant();
  for (const auto& [node, tag] : std::exchange(slot.early, {})) slot.executor->on_arrived(static_cast<int>(node), tag);
  slot.executor->advance();
}

bool PieceRunner::publish() {
  Slot& slot = *slots_[exchanged_ % kSlots];
  if (slot.executor == nullptr || slot.piece != exchanged_ || !slot.executor->done()) return false;
  // A call that may not be what the others call must not succeed anywhere: a broadcast's root, say, needs nothing of
  // the other nodes and would be done before it hears of the mismatch.
  const ActiveCall& oldest = calls_.front();
  if (exchanged_ + 1 == oldest.first_piece + oldest.plan.pieces() && entered_.contains(oldest.sequence)) return false;
  slot.executor.reset();
  ++exchanged_;
  while (!calls_.empty() && exchanged_ >= calls_.front().first_piece + calls_.front().plan.pieces()) {
    calls_.pop_front();
  }
  context_.segment.header().exchanged.store(exchanged_, std::memory_order_release);
  context_.segment.ring_all();
  return true;
}

// Tells those who send to us how far they may go, when they are about to run out of credit.
void PieceRunner::grant() {
  uint64_t freed = UINT64_MAX;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    freed = std::min(freed, context_.segment.board(i).done.load(std::memory_order_acquire));
  }
  // `done` is foreign: a rank cannot free what has not been finished.
  const uint64_t credit = std::min(freed, exchanged_) + kSlots;
  for (uint32_t node = 0; node < credit_.size(); ++node) {
    PeerCredit& peer = credit_[node];
    if (!peer.sends_to_us || credit <= peer.granted_by_us) continue;
    if (peer.granted_by_us > next_piece_ + kSlots / 2) continue;
    peer.granted_by_us = credit;
    context_.send(node, PieceCredit{context_.id, context_.me, credit});
  }
}

void PieceRunner::on_arrived(const PieceFrame& frame) {
  Slot& slot = *slots_[frame.piece % kSlots];
  if (frame.piece < exchanged_ || frame.piece >= exchanged_ + 2 * kSlots) {
    context_.fail(Code::kInternal, -1, "node " + context_.nodes[frame.from].name + " wrote piece " +
                                           std::to_string(frame.piece) + " of " + context_.name() + " without credit");
    return;
  }
  if (slot.executor != nullptr && slot.piece == frame.piece) {
    slot.executor->on_arrived(static_cast<int>(frame.from), frame.tag);
    slot.executor->advance();
  } else if (slot.early.size() < kMaxEarly) {
    slot.early.emplace_back(frame.from, frame.tag);
  } else {
    context_.fail(Code::kInternal, -1, "node " + context_.nodes[frame.from].name + " floods " + context_.name());
  }
}

void PieceRunner::on_sent(const WriteToken& token) {
  Slot& slot = *slots_[token.slot % kSlots];
  if (slot.executor == nullptr) return;
  slot.executor->on_sent(token.number);
  slot.executor->advance();
}

void PieceRunner::on_note(const PieceCredit& note) {
  PeerCredit& credit = credit_[note.from];
  credit.granted_to_us = std::max(credit.granted_to_us, note.pieces);
  std::erase_if(credit.held, [&](const HeldWrite& write) {
    if (write.piece >= credit.granted_to_us) return false;
    context_.write(note.from, write.data, write.bytes, write.offset, write.header, write.token);
    return true;
  });
}

void PieceRunner::on_note(const CallNote& note) {
  if (note.sequence > next_call_ + kMaxAhead || notes_.size() > kMaxAhead) {
    context_.fail(Code::kInternal, -1, "node " + context_.nodes[note.from].name + " runs ahead in " + context_.name());
    return;
  }
  notes_.emplace(note.sequence, note);
  compare(note.sequence);
}

void PieceRunner::compare(uint64_t sequence) {
  const auto note = notes_.find(sequence);
  const auto ours = entered_.find(sequence);
  if (note == notes_.end() || ours == entered_.end()) return;
  if (!(note->second.call == ours->second)) {
    const uint32_t their_rank = context_.order.rank_at[context_.order.first_position[note->second.from]];
    context_.fail(Code::kMismatch, static_cast<int32_t>(their_rank),
                  "call " + std::to_string(sequence) + " of " + context_.name() + ": rank " +
                      std::to_string(context_.local_ranks[0]) + " calls " + session::describe(ours->second) +
                      ", rank " + std::to_string(their_rank) + " calls " + session::describe(note->second.call));
  }
  notes_.erase(note);
  entered_.erase(ours);
}

void PieceRunner::on_rank_left(uint32_t rank, uint64_t entered) {
  left_.emplace_back(rank, entered);
  if (next_call_ > 0) check_left(next_call_ - 1);
}

// A call that a rank did not make before it left will never be complete.
void PieceRunner::check_left(uint64_t sequence) {
  for (const auto& [rank, entered] : left_) {
    if (sequence < entered) continue;
    context_.fail(Code::kRankLost, static_cast<int32_t>(rank),
                  "rank " + std::to_string(rank) + " left " + context_.name() + " after " + std::to_string(entered) +
                      " collective calls; call " + std::to_string(sequence) + " needs it");
    return;
  }
}

std::vector<uint32_t> PieceRunner::late(uint64_t sequence) const {
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    if (context_.segment.board(i).entered.load(std::memory_order_acquire) <= sequence) {
      ranks.push_back(context_.local_ranks[i]);
    }
  }
  return ranks;
}

}  // namespace hdt::daemon
