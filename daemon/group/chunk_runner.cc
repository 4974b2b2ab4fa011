// Calls, chunks and credit of a ChunkRunner: reads calls from the rank states, starts and publishes
// chunks, and exchanges credit and calls with other nodes.
#include "daemon/group/chunk_runner.h"

#include <algorithm>

#include "base/foreign_copy.h"
#include "daemon/group/chunk_slot.h"

namespace hdt::daemon {

using collectives::Area;
using ipc::BufferUse;
using ipc::Call;
using ipc::kCallRing;

namespace {

// A node can be ahead of this one by no more than the calls that its own ranks may have under way: a
// rank enters call s when its call s - kCallRing is complete. A node that exceeds it fails the group, so
// what is kept of foreign calls is bounded.
constexpr uint64_t kMaxAhead = 2 * kCallRing;
static_assert(kMaxAhead <= ipc::kToldCalls);

}  // namespace

ChunkRunner::ChunkRunner(GroupContext& context)
    : context_(context),
      tuner_(std::make_shared<Tuner>(context.layout(), context.order, context.algorithm)),
      journal_(context.segment.journals(), context.layout().nodes, context.layout().slots),
      credit_(context.nodes.size()) {
  for (uint32_t i = 0; i < context.layout().slots; ++i) slots_.push_back(std::make_unique<Slot>(*this, i));
  // A group of one node has no journal.
  if (context.layout().nodes > 1) go_on();
}

// Goes on where a predecessor has ended; a new group begins at 0.
void ChunkRunner::go_on() {
  const ipc::Journal::Finished finished = journal_.finished();
  std::atomic<uint64_t>& exchanged = context_.segment.header().exchanged;
  next_call_ = finished.calls;
  first_chunk_ = finished.chunks;
  // The predecessor may have died after it noted the end of a call and before it published the call's
  // last chunk.
  exchanged_ = std::max(exchanged.load(std::memory_order_acquire), finished.chunks);
  exchanged.store(exchanged_, std::memory_order_release);
  next_chunk_ = exchanged_;
  context_.segment.ring_all();
  journal_.for_told_calls(finished.calls,
                          [this](uint64_t sequence, const Call&) { told_below_ = sequence + 1; });
  // Small writes may not have arrived, and their link is down: settled() must wait for
  // the node's credit or for its Resume.
  journal_.for_sent([this](const ipc::SentWrite& sent, const std::byte*) {
    Slot& slot = *slots_[sent.chunk % slots_.size()];
    slot.chunk = sent.chunk;
    note_write(slot, sent.peer, nullptr, 0);
  });
}

ChunkRunner::~ChunkRunner() = default;

void ChunkRunner::change_measurements(uint64_t call,
                                      std::optional<collectives::CostMeasurements> measurements) {
  earlier_tuner_ =
      std::exchange(tuner_, std::make_shared<Tuner>(context_.layout(), context_.order, context_.algorithm));
  tuner_->set_measurements(std::move(measurements));
  changed_at_ = call;
}

bool ChunkRunner::progress() {
  bool any = read_calls();
  // Each step can make the other possible: a published chunk frees slots of calls in place at once, and
  // no rank would ring for that.
  for (bool moved = true; std::exchange(moved, false);) {
    while (launch()) moved = true;
    while (publish()) moved = true;
    any |= moved;
  }
  // After publishing, so that one message grants what was freed in this round.
  grant();
  return any;
}

bool ChunkRunner::read_calls() {
  uint64_t entered = UINT64_MAX;
  // acquire pairs with the release store by the rank: its call is written before `entered` counts it.
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    entered = std::min(entered, context_.segment.rank_state(i).entered.load(std::memory_order_acquire));
  }
  bool any = false;
  // A rank enters a call only when its call kCallRing before that is complete, so no more are under way.
  while (next_call_ < std::min(entered, read_below_) && calls_.size() < kCallRing) {
    if (!accept_call(next_call_)) return any;
    ++next_call_;
    any = true;
  }
  if (!calls_.empty()) check_departed(calls_.back().sequence);
  return any;
}

// Takes up call `sequence`. Nothing is made of the call before every local rank's copy is compared,
// since ranks may write other bytes there at any time. False: the group has failed over it.
bool ChunkRunner::accept_call(uint64_t sequence) {
  ipc::Entered entered;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    // 1. Copy each rank's call, then validate and compare the copy.
    const ipc::Entered theirs = foreign_copy(context_.segment.rank_state(i).calls[sequence % kCallRing]);
    if (const std::string wrong = ipc::validate(theirs.call, context_.layout().ranks); !wrong.empty()) {
      context_.fail(Code::kInvalidArgument, static_cast<int32_t>(context_.local_ranks[i]),
                    "call " + std::to_string(sequence) + " of " + context_.name() + " by rank " +
                        std::to_string(context_.local_ranks[i]) + ": " + wrong);
      return false;
    }
    if (i == 0) entered = theirs;
    const Call& call = entered.call;
    const Call& other = theirs.call;
    if (other == call) continue;
    context_.fail(Code::kMismatch, static_cast<int32_t>(context_.local_ranks[i]),
                  "call " + std::to_string(sequence) + " of " + context_.name() + ": rank " +
                      std::to_string(context_.local_ranks[0]) + " calls " + ipc::describe(call) + ", rank " +
                      std::to_string(context_.local_ranks[i]) + " calls " + ipc::describe(other));
    return false;
  }
  // 2. Decide the algorithm and find the buffers.
  const Call& call = entered.call;
  const std::shared_ptr<Tuner>& tuner = tuner_of(sequence);
  ActiveCall active{sequence,
                    call,
                    ipc::Partition(call, context_.layout()),
                    calls_.empty() ? first_chunk_ : calls_.back().end(),
                    tuner,
                    tuner->decide(call).algorithm};
  if (!open_buffers(active, entered.where)) return false;
  // 3. Note the call in the journal before the next node hears of it: a successor must answer for
  //    what was sent.
  calls_.push_back(std::move(active));
  journal_.tell_call(sequence, call);
  const auto next_node = static_cast<uint32_t>((context_.me + 1) % context_.nodes.size());
  context_.send(next_node, CallMessage{context_.id, context_.me, sequence, call});
  // 4. Compare it with the previous node's, if that has come.
  entered_.emplace(sequence, call);
  compare(sequence);
  return true;
}

// Finds memory `number` of the node's only rank, and sets `place` to [offset, offset + bytes) in it. The
// memory that the process names is no more than a hint: the process must share that memory, and it must be
// large enough. `note`, if not null, gets the place for other nodes. A process learns the number when this
// engine knows the memory (Requests::on_share()), so what is not known here is not shared.
bool ChunkRunner::open_buffer(ActiveCall& call, uint64_t number, uint64_t offset, uint64_t bytes,
                              std::byte*& place, OutputMessage* note) {
  auto use = context_.direct.acquire(0, number);
  if (!use.is_ok()) {
    context_.fail(use.status().code(), static_cast<int32_t>(context_.local_ranks[0]), use.status().message());
    return false;
  }
  const DirectMemory::Use* memory = use.value();
  if (memory != nullptr) call.memories.push_back(number);
  if (memory != nullptr && offset <= memory->bytes && bytes <= memory->bytes - offset) {
    place = memory->data + offset;
    if (note != nullptr) {
      note->direct = 1;
      note->offset = offset;
    }
    return true;
  }
  context_.fail(Code::kInvalidArgument, static_cast<int32_t>(context_.local_ranks[0]),
                "call " + std::to_string(call.sequence) + " of " + context_.name() + " names " +
                    (memory == nullptr ? "memory that its process does not share"
                                       : "a buffer that is not within the memory that the call names"));
  return false;
}

// Which buffers are used in place depends on the node (ipc/buffer_use.h). The rank computes the same from the
// same call, so both know which stages it goes through.
bool ChunkRunner::open_buffers(ActiveCall& active, const ipc::Exposure& where) {
  const Call& call = active.call;
  const ipc::Layout& layout = context_.layout();
  active.use =
      ipc::buffer_use(call, layout, context_.local_ranks[0],
                      {.send_shared = where.send_memory != 0, .recv_shared = where.recv_memory != 0});
  if (!ipc::may_be_direct(call, layout)) return true;
  OutputMessage note{context_.id, context_.me, active.sequence, call, 0, {}, 0};
  bool opened = true;
  // 1. This node's input and output.
  if (active.use.send == BufferUse::kInPlace) {
    // A broadcast's root has its data in its sendbuf, which is the output of its schedule.
    std::byte*& place = collectives::reduces(call.what) ? active.input : active.output;
    opened = open_buffer(active, where.send_memory, where.send, ipc::contribution_bytes(call, layout.ranks),
                         place, nullptr);
  }
  if (opened && active.use.recv == BufferUse::kInPlace) {
    // Peers write nothing into the result of a reduce-scatter.
    OutputMessage* told = call.what == collectives::Collective::kReduceScatter ? nullptr : &note;
    opened = open_buffer(active, where.recv_memory, where.recv, ipc::result_bytes(call, layout.ranks),
                         active.output, told);
  }
  if (!opened) {
    for (const uint64_t number : active.memories) context_.direct.release(number);
    return false;
  }
  // 2. If the slots hold nothing of the rank's, freed() counts these chunks as soon as they are exchanged.
  if (!active.use.holds_slots()) unslotted_.push_back({active.first_chunk, active.end()});
  // 3. Send the other nodes where the output is, also if it is in the slots: they wait for this message.
  active.output_note = note;
  active.output_memory = where.recv_memory;
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me) tell_output(node, note, where.recv_memory);
  }
  return true;
}

// The key is another one for each backend, and the node must be allowed to write before it has the key.
void ChunkRunner::tell_output(uint32_t node, OutputMessage note, uint64_t memory) {
  if (context_.peers[node].link == nullptr) return;  // it is sent when the node is back (tell_state())
  if (note.direct != 0) {
    auto key = context_.direct.key_for(memory, context_.peers[node].backend, context_.nodes[node].id);
    if (!key.is_ok()) {
      context_.fail(key.status().code(), static_cast<int32_t>(context_.local_ranks[0]),
                    key.status().message());
      return;
    }
    note.region = key.value();
  }
  context_.send(node, note);
}

ChunkRunner::ActiveCall* ChunkRunner::call_of(uint64_t chunk) {
  const auto covers = [chunk](const ActiveCall& c) { return chunk >= c.first_chunk && chunk < c.end(); };
  const auto found = std::find_if(calls_.begin(), calls_.end(), covers);
  return found == calls_.end() ? nullptr : &*found;
}

// The contributions of all local ranks are where the schedule reads them.
bool ChunkRunner::is_ready(const ActiveCall& call, uint64_t chunk) const {
  // An allgather's own block is copied to its place chunk by chunk, so `reduced` counts even in place.
  if (call.use.source_in_place() && call.use.send != BufferUse::kOwnCopy) return true;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    if (context_.segment.rank_state(i).reduced.load(std::memory_order_acquire) <= chunk) return false;
  }
  return true;
}

// `done` is foreign, and a rank cannot free a chunk that has not been finished: hence the minimum.
// Chunks without slots (`unslotted_`) are free as soon as they are exchanged.
uint64_t ChunkRunner::freed() {
  uint64_t done = UINT64_MAX;
  for (uint32_t i = 0; i < context_.layout().local_ranks; ++i) {
    done = std::min(done, context_.segment.rank_state(i).done.load(std::memory_order_acquire));
  }
  freed_ = std::max(freed_, std::min(done, exchanged_));
  while (!unslotted_.empty() && freed_ >= unslotted_.front().first) {
    freed_ = std::max(freed_, std::min(exchanged_, unslotted_.front().end));
    if (freed_ < unslotted_.front().end) break;
    unslotted_.pop_front();
  }
  return freed_;
}

// With unequal parts the results of one chunk travel while the contributions of the next do. Links send in
// order, so with many chunks in flight all their contributions would go before the first result: between four
// hosts, one at half the rate, 16 chunks reach 83 % of the bound and 4 reach 98 % (64 MiB).
size_t ChunkRunner::in_flight(const ActiveCall& call) const {
  constexpr size_t kOfUnequalParts = 4;
  return call.tuner->weights_of(call.call, call.algorithm).empty() ? slots_.size()
                                                                   : std::min(kOfUnequalParts, slots_.size());
}

// The next chunk starts when its call is known, its slot has no executor, the local contributions are in
// place, and all local ranks have copied out the chunk before it in the slot.
bool ChunkRunner::launch() {
  const ActiveCall* call = call_of(next_chunk_);
  if (call == nullptr || slots_[next_chunk_ % slots_.size()]->executor != nullptr ||
      !is_ready(*call, next_chunk_) || next_chunk_ >= freed() + in_flight(*call)) {
    return false;
  }
  // The journal keeps small writes by slot and forgets them when the slot's next chunk starts. They must
  // have arrived until then.
  const Slot& slot = *slots_[next_chunk_ % slots_.size()];
  if (slot.chunk != next_chunk_ && !settled(slot)) {
    awaits_arrivals_ = true;
    return false;
  }
  awaits_arrivals_ = false;
  start(*call, next_chunk_++);
  return true;
}

// Makes the schedule and the executor of a chunk, and lets the executor run.
void ChunkRunner::start(const ActiveCall& active, uint64_t chunk) {
  Slot& slot = *slots_[chunk % slots_.size()];
  const ipc::Layout& layout = context_.layout();
  const ipc::Chunk part = active.plan.chunk(chunk - active.first_chunk);
  auto schedule = make_schedule(active.algorithm,
                                active.tuner->problem(active.call, part, active.algorithm, context_.me));
  // 1. Find the nodes that send to us in this schedule: they need credit.
  for (PeerCredit& credit : credit_) credit.sends_to_us = false;
  for (size_t i = 0;; ++i) {
    const auto step = schedule->step(i);
    if (!step) break;
    if (step->kind == collectives::StepKind::kRecv || step->kind == collectives::StepKind::kRecvReduce) {
      credit_[static_cast<size_t>(step->peer)].sends_to_us = true;
    }
  }
  // 2. Where input, output and scratch are: in the slot, or in user buffers from the chunk's first
  //    element on. A chunk of a call by blocks has a part of every rank's block, whose places `blocks`
  //    lists by position.
  std::byte* data = context_.segment.data();
  collectives::SlotMemory memory{data + layout.input(chunk), data + layout.output(chunk),
                                 data + layout.scratch(chunk)};
  const bool by_ranks = ipc::by_blocks(active.call.what);
  const uint64_t begin = by_ranks ? 0 : part.offset * collectives::type_size(active.call.type);
  if (active.input != nullptr) memory.input = active.input + begin;
  if (active.output != nullptr) memory.output = active.output + begin;
  if (by_ranks && part.elements != 0) {
    slot.blocks = {part.elements, {}};
    for (uint64_t position = 0; position < layout.ranks; ++position) {
      slot.blocks.starts.push_back(user_index(active.call, part, context_.order, position * part.elements));
    }
    if (active.input != nullptr) memory.input_blocks = &slot.blocks;
    if (active.output != nullptr) memory.output_blocks = &slot.blocks;
    if (active.output != nullptr && active.call.what == collectives::Collective::kReduceScatter) {
      // The recvbuf holds only this node's own block, and that is the only block that such a schedule
      // leaves in its output. So every position leads there.
      slot.result = {part.elements, std::vector<uint64_t>(layout.ranks, part.offset)};
      memory.output_blocks = &slot.result;
    }
  }
  // 3. A successor goes on with the progress in the journal; otherwise the journal's entry begins anew.
  slot.goes_on = journal_.started(chunk);
  if (!slot.goes_on) {
    journal_.start(chunk);
    slot.last_writes.clear();
  }
  slot.chunk = chunk;
  slot.executor = std::make_unique<collectives::Executor>(
      std::move(schedule), active.call.type, active.call.op, memory, slot, &journal_.progress(chunk));
  // 4. Grant before the executor writes, so that credit does not queue behind the payloads.
  grant();
  // 5. Payloads that came before, in this daemon's life or its predecessor's.
  journal_.for_arrivals(
      chunk, [&](uint32_t node, uint32_t tag) { slot.executor->on_arrived(static_cast<int>(node), tag); });
  slot.executor->advance();
}

// Publishes the oldest chunk. Chunks that are done out of order wait, as `exchanged` is one counter.
bool ChunkRunner::publish() {
  Slot& slot = *slots_[exchanged_ % slots_.size()];
  if (slot.executor == nullptr || slot.chunk != exchanged_ || !slot.executor->done()) return false;
  // A call may turn out to differ from what the others call, and must then succeed nowhere. A
  // broadcast's root, for example, needs nothing from the other nodes and would be done before it hears
  // of the mismatch. So the last chunk waits until the call is compared.
  const ActiveCall& oldest = calls_.front();
  if (exchanged_ + 1 == oldest.end() && entered_.contains(oldest.sequence)) return false;
  slot.executor.reset();
  ++exchanged_;
  // The end of the call stands in the journal before its last chunk is published. After a crash in
  // between, go_on() publishes it.
  while (!calls_.empty() && exchanged_ >= calls_.front().end()) {
    first_chunk_ = calls_.front().end();
    journal_.finish_call(calls_.front().sequence, first_chunk_);
    for (const uint64_t number : calls_.front().memories) context_.direct.release(number);
    calls_.pop_front();
    for (PeerCredit& credit : credit_) drop_outputs(credit);
  }
  // release: ranks that see the new count also see the result that was written before.
  context_.segment.header().exchanged.store(exchanged_, std::memory_order_release);
  context_.segment.ring_all();
  return true;
}

// Sends credit to nodes that are about to run out of it. While half of the slots are still granted
// nothing is urgent: then credit is sent during calls only, and for a quarter of the slots at once.
// Between two calls no node runs out, and the ranks here would wait for the sending, so credit goes with
// the next call.
void ChunkRunner::grant() {
  const uint64_t credit = freed() + slots_.size();
  for (uint32_t node = 0; node < credit_.size(); ++node) {
    PeerCredit& peer = credit_[node];
    if (!peer.sends_to_us || credit <= peer.granted_by_us) continue;
    const bool enough = peer.granted_by_us > next_chunk_ + slots_.size() / 2;
    if (enough && (calls_.empty() || credit < peer.granted_by_us + slots_.size() / 4)) continue;
    peer.granted_by_us = credit;
    context_.send(node, ChunkCredit{context_.id, context_.me, credit});
  }
}

void ChunkRunner::on_arrived(const ChunkFrame& frame) {
  Slot& slot = *slots_[frame.chunk % slots_.size()];
  // A payload outside of the window of slots was sent without credit.
  if (frame.chunk < exchanged_ || frame.chunk >= exchanged_ + slots_.size()) {
    context_.fail(Code::kInternal, -1,
                  "node " + context_.nodes[frame.from].name + " wrote chunk " + std::to_string(frame.chunk) +
                      " of " + context_.name() + " without credit");
    return;
  }
  // Noted in the journal before anything else is done with it: the link acknowledges it afterwards, and
  // the sender forgets it then. The journal is full if a node sends payloads that no schedule has.
  if (!journal_.arrived(frame.chunk, frame.from, frame.tag)) {
    context_.fail(Code::kInternal, -1,
                  "node " + context_.nodes[frame.from].name + " floods " + context_.name());
    return;
  }
  // The chunk has not started here yet. start() finds the payload in the journal.
  if (slot.executor == nullptr || slot.chunk != frame.chunk) return;
  slot.executor->on_arrived(static_cast<int>(frame.from), frame.tag);
  slot.executor->advance();
}

void ChunkRunner::on_sent(const WriteToken& token) {
  Slot& slot = *slots_[token.slot % slots_.size()];
  if (slot.executor == nullptr) return;
  slot.executor->on_sent(token.number);
  slot.executor->advance();
}

// Credit is a total and only grows, so a message that comes late or twice changes nothing.
void ChunkRunner::on_message(const ChunkCredit& note) {
  PeerCredit& credit = credit_[note.from];
  credit.granted_to_us = std::max(credit.granted_to_us, note.chunks);
  write_held(note.from);
  drop_outputs(credit);
}

// An OutputMessage came on the link, so writes to that output must take it.
bool ChunkRunner::needs(const transport::Link& link) const {
  return std::any_of(credit_.begin(), credit_.end(), [&](const PeerCredit& credit) {
    return std::any_of(credit.outputs.begin(), credit.outputs.end(), [&](const auto& entry) {
      return entry.second.link == &link && entry.second.note.direct != 0;
    });
  });
}

void ChunkRunner::on_message(const OutputMessage& note, const transport::Link& link) {
  PeerCredit& credit = credit_[note.from];
  if (note.sequence > next_call_ + kMaxAhead || credit.outputs.size() > kMaxAhead) {
    context_.fail(Code::kInternal, -1,
                  "node " + context_.nodes[note.from].name + " runs ahead in " + context_.name());
    return;
  }
  credit.outputs.insert_or_assign(note.sequence, PeerCredit::Output{note, &link});
  write_held(note.from);
  // While the node is suspended its notes are kept: writes from the journal may need those of finished
  // calls.
  if (!context_.peers[note.from].suspended) drop_outputs(credit);
}

void ChunkRunner::on_message(const CallMessage& note) {
  if (note.sequence > next_call_ + kMaxAhead || notes_.size() > kMaxAhead) {
    context_.fail(Code::kInternal, -1,
                  "node " + context_.nodes[note.from].name + " runs ahead in " + context_.name());
    return;
  }
  if (note.sequence < next_call_ && !entered_.contains(note.sequence))
    return;  // sent again after a restart, and compared before
  notes_.emplace(note.sequence, note);
  compare(note.sequence);
}

// Whichever of the two comes last finds the other.
void ChunkRunner::compare(uint64_t sequence) {
  const auto note = notes_.find(sequence);
  const auto ours = entered_.find(sequence);
  if (note == notes_.end() || ours == entered_.end()) return;
  if (!(note->second.call == ours->second)) {
    const uint32_t their_rank = context_.order.rank_at[context_.order.first_position[note->second.from]];
    context_.fail(Code::kMismatch, static_cast<int32_t>(their_rank),
                  "call " + std::to_string(sequence) + " of " + context_.name() + ": rank " +
                      std::to_string(context_.local_ranks[0]) + " calls " + ipc::describe(ours->second) +
                      ", rank " + std::to_string(their_rank) + " calls " + ipc::describe(note->second.call));
    return;  // the call stays uncompared, so nothing of it is published
  }
  notes_.erase(note);
  entered_.erase(ours);
}

void ChunkRunner::on_rank_departed(uint32_t rank, uint64_t entered) {
  const auto same = [rank](const auto& other) { return other.first == rank; };
  if (std::none_of(departed_.begin(), departed_.end(), same)) departed_.emplace_back(rank, entered);
  if (next_call_ > 0) check_departed(next_call_ - 1);
}

// A call that a rank did not make before it departed will never be complete. `sequence` is the latest
// call to check; a rank makes all calls in order.
void ChunkRunner::check_departed(uint64_t sequence) {
  for (const auto& [rank, entered] : departed_) {
    if (sequence < entered) continue;
    context_.fail(Code::kRankLost, static_cast<int32_t>(rank),
                  "rank " + std::to_string(rank) + " departed from " + context_.name() + " after " +
                      std::to_string(entered) + " collective calls; call " + std::to_string(sequence) +
                      " needs it");
    return;
  }
}

}  // namespace hdt::daemon
