// piece_runner.h: the part of a group's collectives that crosses nodes. Watches the local ranks' boards, runs
// the schedule of each piece when its local part is ready, and publishes `exchanged` in order.
//
// Flow control: a node may write piece p to another when that one has granted p < credit. Credit = pieces
// whose slot every local rank has freed + slots, so payload always lands in a free slot, even when the
// receiver's ranks have not made the call yet. Every node starts with a credit of as many as there are slots
// at every other.
//
// In place: where a node's only rank of the group has its buffers in memory of hdtMemAlloc, the schedule runs
// on them instead of the slot's input and output. Before a call of which some node may do so, all tell each
// other where their output is (OutputNote); a write to an output waits for that, and is refused if the two
// are not the same call.
//
// Mismatch: when all local ranks have entered call s, a CallNote goes to the next node of the ring of nodes.
// If any two ranks of the group differ, some neighbours differ, so it is found whatever the schedules do. A
// call is finished on a node only when the previous node's call is known to be the same.
//
// Restart (docs/design/restart.md): everything that a successor of this daemon needs is in the segment's
// journal before it has any effect elsewhere. When the way to a node is there again, both ends go through
// their writes to the other: what has come is skipped, the rest is written again, small writes from the
// journal, large ones from where they are.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "collectives/executor.h"
#include "daemon/group/group_context.h"
#include "daemon/group/tuner.h"
#include "ipc/journal.h"

namespace hdt::daemon {

class PieceRunner {
 public:
  explicit PieceRunner(GroupContext& context);
  ~PieceRunner();

  // Looks at the boards and does what can be done. True if anything was done.
  bool progress();
  void on_arrived(const PieceFrame& frame);
  void on_sent(const WriteToken& token);
  void on_note(const PieceCredit& note);
  void on_note(const CallNote& note);
  // `link`: on which it came; what it says holds for writes on that link.
  void on_note(const OutputNote& note, const transport::Link& link);
  // Some call under way writes to a peer's output over this link.
  bool needs(const transport::Link& link) const;
  // The link to a node is gone: nobody knows what of the last writes has come. A link that was moved away
  // from is.
  void on_link_down(uint32_t node, const transport::Link& link);
  void on_link_dropped(const transport::Link& link);
  // Says to the node what of its payload has come.
  void tell_state(uint32_t node);
  // The node has said so; its tags are in context.peers[node].their_pieces.
  void on_note(const Resume& note);
  // A piece waits until writes have arrived of which the receiver is in no hurry to say so.
  bool awaits_arrivals() const { return awaits_arrivals_; }
  // Memory that calls may use is gone.
  void forget_memory(uint64_t number) { context_.direct.drop(number); }
  void on_rank_left(uint32_t rank, uint64_t entered);

  // Calls that all local ranks have entered / that are finished on this node.
  uint64_t calls_entered() const { return next_call_; }
  uint64_t pieces_exchanged() const { return exchanged_; }
  Tuner& tuner() { return tuner_; }
  bool idle() const { return calls_.empty(); }

 private:
  struct ActiveCall {
    uint64_t sequence;
    session::Call call;
    session::Plan plan;
    uint64_t first_piece;
    collectives::Algorithm algorithm;
    std::byte* input = nullptr;  // in place; null: the slot's
    std::byte* output = nullptr;
    std::vector<uint64_t> memories;  // in use until the call is finished
    std::optional<OutputNote> output_note;
    uint64_t output_memory = 0;
    uint64_t end() const { return first_piece + plan.pieces(); }
  };
  class Slot;
  struct HeldWrite {
    session::SentWrite what;
    const void* data;
    WriteToken token;
    bool kept() const { return token.kind == WriteToken::Kind::kKept; }
  };

  bool read_calls();
  bool accept_call(uint64_t sequence);
  // Finds the buffers that the call uses in place. False: not known yet, or the group has failed.
  bool open_buffers(ActiveCall& call, const session::Exposure& where);
  bool open_buffer(ActiveCall& call, uint64_t number, uint64_t offset, uint64_t bytes, std::byte*& place,
                   OutputNote* note);
  void tell_output(uint32_t node, OutputNote note, uint64_t memory);
  // True: the data was copied.
  bool write(Slot& slot, HeldWrite write);
  void go_on();
  static void note_write(Slot& slot, uint32_t node, const transport::Link* link, uint64_t number);
  void issue(const HeldWrite& write);
  // Of the journal, which is foreign: it must not lead out of the peer's memory.
  bool is_sound(const session::SentWrite& what) const;
  HeldWrite kept_write(const session::SentWrite& what, const std::byte* data) const;
  bool settled(const Slot& slot) const;
  struct PeerCredit;
  void drop_outputs(PeerCredit& credit) const;
  uint64_t first_unfinished() const { return calls_.empty() ? next_call_ : calls_.front().sequence; }
  bool is_ready(const ActiveCall& call, uint64_t piece) const;
  uint64_t freed();
  ActiveCall* call_of(uint64_t piece);
  bool try_write(const HeldWrite& write);
  void write_held(uint32_t node);
  bool launch();
  void start(const ActiveCall& call, uint64_t piece);
  bool publish();
  void grant();
  void compare(uint64_t sequence);
  void check_left(uint64_t sequence);

  GroupContext& context_;
  Tuner tuner_;
  session::Journal journal_;
  bool awaits_arrivals_ = false;
  uint64_t first_piece_ = 0;  // of the first call that is not finished
  uint64_t next_call_ = 0;    // first call not read yet
  uint64_t next_piece_ = 0;   // first piece not started yet
  uint64_t exchanged_ = 0;
  std::deque<ActiveCall> calls_;                     // entered, not finished
  std::map<uint64_t, CallNote> notes_;               // of the previous node, not compared yet
  std::map<uint64_t, session::Call> entered_;        // ours, not compared yet
  std::vector<std::pair<uint32_t, uint64_t>> left_;  // rank, calls it entered
  std::vector<std::unique_ptr<Slot>> slots_;
  uint64_t freed_ = 0;            // slots of the pieces below are not used any more by our ranks
  uint64_t missed_ = UINT64_MAX;  // call whose memory was not known when it was looked at first
  uint64_t missed_looks_ = 0;     // what context_.looks was then
  struct Range {
    uint64_t first, end;
  };
  std::deque<Range> unslotted_;  // pieces of which ranks have nothing in slots
  struct PeerCredit {
    uint64_t granted_to_us = session::kSlotsBetweenNodes;
    uint64_t granted_by_us = session::kSlotsBetweenNodes;
    bool sends_to_us = false;     // in the latest schedule
    std::vector<HeldWrite> held;  // wait for credit, or to know where the peer's output is
    struct Output {
      OutputNote note;
      const transport::Link* link;
    };
    std::map<uint64_t, Output> outputs;  // by call
    // What the node said when it came back: all of the pieces below, and these tags.
    uint64_t came_below = 0;
    std::map<uint64_t, std::set<uint32_t>> came;
    bool has(uint64_t piece, uint32_t tag) const {
      const auto tags = came.find(piece);
      return piece < came_below || (tags != came.end() && tags->second.contains(tag));
    }
  };
  std::vector<PeerCredit> credit_;
};

}  // namespace hdt::daemon
