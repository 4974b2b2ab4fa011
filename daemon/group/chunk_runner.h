// chunk_runner.h: the part of a group's collectives that crosses nodes. It reads the calls that the
// local ranks have made from their rank states (`RankState`), runs the schedule of each chunk (`Chunk`) when
// the local part is done, and publishes `exchanged` in order, upon which ranks copy out their results.
//
// The life of a chunk p:
//
// 1. Its call is known on this node (accept_call()), and all local ranks have reduced into the slot
//    (is_ready()).
// 2. Its slot is free: the chunk p - slots was copied out by all local ranks (freed()), and the small
//    writes of that chunk have arrived (settled()).
// 3. start() makes the executor, which writes payloads to other nodes. Payloads of other nodes may have
//    come before.
// 4. When the executor is done, publish() counts `exchanged` up. Chunks are published in order.
//
// Flow control: a node may write chunk p to another node when that node has granted a credit above p.
// The credit is the number of chunks whose slots all its local ranks have freed, plus the number of
// slots. So a payload always lands in a free slot, even if the receiver's ranks have not made the call
// yet. Every node begins with a credit of one for each slot at every other node.
//
// In place: if a node's only rank of the group has its buffers in memory of hdtMemAlloc, the schedule
// runs on these buffers instead of the slot's input and output. Before a call of which some node may do
// so, all nodes send each other where their output is (OutputMessage). A write to an output waits for that
// message, and is not made if the two nodes make different calls.
//
// Mismatch: when all local ranks have entered call s, a CallMessage goes to the next node of the ring of
// nodes. If any two ranks of the group differ, some neighbours differ, so it is found whatever the
// schedules do. A call is finished on a node only when the previous node's call is known to be the same.
//
// Rates that change (rate_changes.h): a call is decided and run by the rates of its number, so calls before
// and behind a change may be under way at once.
//
// Restart (docs/design/restart.md): everything that a successor of this daemon needs is in the segment's
// journal before it has any effect elsewhere. When the path to a node is there again, both ends go
// through their writes to the other: what has come is skipped, the rest is written again, small writes
// from the journal, large ones from where they are.
//
// Owner: EngineGroup; the engine's thread only. After the group has failed, EngineGroup calls no
// function that would move data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "collectives/executor.h"
#include "daemon/group/group_context.h"
#include "daemon/group/tuner.h"
#include "ipc/buffer_use.h"
#include "ipc/journal.h"

namespace hdt::daemon {

// See the head of this file. chunk_runner.cc has calls, chunks and credit; chunk_writes.cc has writes;
// chunk_restart.cc has what follows the loss of a daemon.
class ChunkRunner {
 public:
  // Goes on from the journal, which is empty in a new group. `context` must outlive the runner.
  explicit ChunkRunner(GroupContext& context);
  ~ChunkRunner();

  // Reads the rank states and does everything that can be done. True if anything was done.
  bool progress();
  // A payload has landed. One that no schedule can have, or that was sent without credit, fails the
  // group.
  void on_arrived(const ChunkFrame& frame);
  // The memory of a large payload is free.
  void on_sent(const WriteToken& token);
  // The node has freed slots: writes that wait for credit go.
  void on_message(const ChunkCredit& note);
  // The previous node of the ring has entered this call.
  void on_message(const CallMessage& note);
  // The node's output of this call is there. `link` is the link on which the message came: the region's
  // key holds for that link's backend, so writes to the output take that link, even if the group moves.
  void on_message(const OutputMessage& note, const transport::Link& link);
  // Some call under way writes to a peer's output over this link, so the link must stay.
  bool needs(const transport::Link& link) const;
  // on_link_down(): the link to the node is down, and nobody knows which of the last writes have come.
  // on_link_dropped(): the group has moved away from the link, and everything that was written on it has
  // arrived.
  void on_link_down(uint32_t node, const transport::Link& link);
  void on_link_dropped(const transport::Link& link);
  // Sends the node what has come of its payloads, where our outputs are, and Resume.
  void tell_state(uint32_t node);
  // The node has sent Resume; its tags are in context.peers[node].their_chunks. Makes every write to it
  // again that has not come.
  void on_message(const Resume& note);
  // A chunk waits for the arrival of small writes whose acknowledgement the receiver delays: somebody
  // must ask for it.
  bool awaits_arrivals() const { return awaits_arrivals_; }
  // The memory `number` is not shared any more.
  void forget_memory(uint64_t number) { context_.direct.drop(number); }
  // Rank `rank` (of any node) has departed after `entered` calls. A call that it did not make fails the
  // group.
  void on_rank_departed(uint32_t rank, uint64_t entered);

  // Sets what the nodes have measured (Tuner::set_measurements()), before the first call is read.
  void set_measurements(std::optional<collectives::CostMeasurements> measurements) {
    tuner_->set_measurements(std::move(measurements));
  }
  // Calls from `call` on, which was not read yet, are run by these measurements.
  void change_measurements(uint64_t call, std::optional<collectives::CostMeasurements> measurements);
  // Reads no call from this one on, until it is asked again.
  void read_below(uint64_t call) { read_below_ = call; }
  // This daemon and its predecessors have read no call from this one on.
  uint64_t first_unread() const { return std::max(next_call_, told_below_); }
  // the number of the oldest call under way; if there is none, of the next one
  uint64_t first_unfinished() const { return calls_.empty() ? next_call_ : calls_.front().sequence; }

  // Calls that all local ranks have entered and this node has read.
  uint64_t calls_entered() const { return next_call_; }
  // chunks below are published
  uint64_t chunks_exchanged() const { return exchanged_; }
  // Decides about calls that were not read yet.
  Tuner& tuner() const { return *tuner_; }
  // no call is under way between the nodes
  bool idle() const { return calls_.empty(); }

 private:
  // A call that all local ranks have entered and that is not finished. Its chunks are [first_chunk,
  // end()).
  struct ActiveCall {
    uint64_t sequence;
    ipc::Call call;
    ipc::Partition plan;
    uint64_t first_chunk;
    // the one that decided, and that knows the parts of the nodes
    std::shared_ptr<Tuner> tuner;
    collectives::Algorithm algorithm;
    // what becomes of the buffers of the node's rank, as it computes it, too; of several ranks: slots
    ipc::CallBuffers use = {};
    // the user's sendbuf, used in place; null: the slots' input
    std::byte* input = nullptr;
    // the user's recvbuf, used in place; null: the slots' output
    std::byte* output = nullptr;
    // memory in use until the call is finished (DirectMemory::acquire())
    std::vector<uint64_t> memories = {};
    // what the other nodes were sent, for tell_state(); nothing: the call is never in place
    std::optional<OutputMessage> output_note = {};
    // the memory that `output_note` speaks of
    uint64_t output_memory = 0;
    uint64_t end() const { return first_chunk + plan.chunks(); }
  };
  class Slot;
  // A write that was asked for: made, or waiting for credit, for the node's return or for its
  // OutputMessage.
  struct HeldWrite {
    ipc::SentWrite what;
    // the journal's copy of a small payload, otherwise the place in the slot or in the user's buffer
    const void* data;
    WriteToken token;
    bool kept() const { return token.kind == WriteToken::Kind::kKept; }
  };

  // Reads calls that all local ranks have entered. True if there were any.
  bool read_calls();
  // False: the group has failed.
  bool accept_call(uint64_t sequence);
  // Finds the buffers that the call uses in place, and sends the nodes where the output is. False: the
  // group has failed.
  bool open_buffers(ActiveCall& call, const ipc::Exposure& where);
  bool open_buffer(ActiveCall& call, uint64_t number, uint64_t offset, uint64_t bytes, std::byte*& place,
                   OutputMessage* note);
  // Sends one node where the output of a call is, with the key for its backend.
  void tell_output(uint32_t node, OutputMessage note, uint64_t memory);
  // The same as Slot::write(), with the same answer.
  bool write(Slot& slot, HeldWrite write);
  // Takes up what a predecessor has left, or begins at 0.
  void go_on();
  // Notes the latest small write of the slot's chunk to that node on that link, for settled().
  static void note_write(Slot& slot, uint32_t node, const transport::Link* link, uint64_t number);
  // Makes the write, or keeps it until it can be made.
  void submit(const HeldWrite& write);
  // Whether a write from the journal stays within the peer's memory. The journal is foreign: ranks can
  // write there.
  bool is_sound(const ipc::SentWrite& what) const;
  HeldWrite kept_write(const ipc::SentWrite& what, const std::byte* data) const;
  // All small writes of the slot's chunk have arrived, so the journal may forget them.
  bool settled(const Slot& slot) const;
  struct PeerCredit;
  // Drops OutputNotes of calls that are finished and that no held write needs.
  void drop_outputs(PeerCredit& credit) const;
  // The tuner that decides about a call.
  const std::shared_ptr<Tuner>& tuner_of(uint64_t sequence) const {
    return sequence < changed_at_ ? earlier_tuner_ : tuner_;
  }
  // The contributions of all local ranks are where the schedule reads them.
  bool is_ready(const ActiveCall& call, uint64_t chunk) const;
  // The number of chunks whose slots all local ranks have freed. Only grows.
  uint64_t freed();
  // null: the chunk belongs to no call that was read
  ActiveCall* call_of(uint64_t chunk);
  // Makes the write if it can be made now. False: not yet.
  bool try_write(const HeldWrite& write);
  // Tries the writes to the node that are held.
  void write_held(uint32_t node);
  // How many chunks may be under way while those of the call are started.
  size_t in_flight(const ActiveCall& call) const;
  // Starts the next chunk if it may start.
  bool launch();
  void start(const ActiveCall& call, uint64_t chunk);
  // Publishes the oldest chunk if it is done, and finishes its call if it was the last one.
  bool publish();
  // Sends credit to nodes that need it.
  void grant();
  // Compares our call with the previous node's when both are known.
  void compare(uint64_t sequence);
  // Fails the group if some rank departed before it made this call.
  void check_departed(uint64_t sequence);

  GroupContext& context_;
  std::shared_ptr<Tuner> tuner_;
  // of the calls before `changed_at_`; null: all calls are those of `tuner_`
  std::shared_ptr<Tuner> earlier_tuner_;
  uint64_t changed_at_ = 0;
  uint64_t read_below_ = UINT64_MAX;
  // a predecessor has read the calls below, and may have begun them
  uint64_t told_below_ = 0;
  ipc::Journal journal_;
  // see awaits_arrivals()
  bool awaits_arrivals_ = false;
  // the first chunk of the first call that is not finished
  uint64_t first_chunk_ = 0;
  // the first call that was not read yet
  uint64_t next_call_ = 0;
  // the first chunk that was not started yet
  uint64_t next_chunk_ = 0;
  // as published in the segment's header
  uint64_t exchanged_ = 0;
  // entered and not finished, in order
  std::deque<ActiveCall> calls_;
  // of the previous node, by call; not compared yet
  std::map<uint64_t, CallMessage> notes_;
  // our own calls by number; not compared yet
  std::map<uint64_t, ipc::Call> entered_;
  // ranks that have departed, and how many calls each had entered
  std::vector<std::pair<uint32_t, uint64_t>> departed_;
  // by slot number
  std::vector<std::unique_ptr<Slot>> slots_;
  // see freed()
  uint64_t freed_ = 0;
  struct Range {
    uint64_t first, end;
  };
  // chunks for which ranks use no slot, oldest first: both buffers are used in place
  std::deque<Range> unslotted_;
  // The facts about another node's progress. Counts are of chunks and only grow.
  struct PeerCredit {
    uint64_t granted_to_us = ipc::kSlotsBetweenNodes;
    uint64_t granted_by_us = ipc::kSlotsBetweenNodes;
    // the latest schedule that was started has payloads from that node, so it needs credit from us
    bool sends_to_us = false;
    // writes that wait, in the order in which they were asked for
    std::vector<HeldWrite> held;
    struct Output {
      OutputMessage note;
      const transport::Link* link;
    };
    // by call number
    std::map<uint64_t, Output> outputs;
    // The node sent this when it came back: it has all payloads of the chunks below `came_below`, and of
    // later chunks the tags in `came`.
    uint64_t came_below = 0;
    std::map<uint64_t, std::set<uint32_t>> came;
    bool has(uint64_t chunk, uint32_t tag) const {
      const auto tags = came.find(chunk);
      return chunk < came_below || (tags != came.end() && tags->second.contains(tag));
    }
  };
  // by node
  std::vector<PeerCredit> credit_;
};

}  // namespace hdt::daemon
