// piece_runner.h: the part of a group's collectives that crosses nodes. Watches the local ranks' boards, runs the schedule
// of each piece when its local part is ready, and publishes `exchanged` in order.
//
// Flow control: a node may write piece p to another when that one has granted p < credit. Credit = pieces whose
// slot every local rank has freed + kSlots, so payload always lands in a free slot, even when the receiver's ranks have
// not made the call yet. Every node starts with a credit of kSlots at every other.
//
// Mismatch: when all local ranks have entered call s, a CallNote goes to the next node of the ring of nodes. If any
// two ranks of the group differ, some neighbours differ, so it is found whatever the schedules do.
// A call is finished on a node only when the previous node's call is known to be the same.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "collectives/executor.h"
#include "daemon/group_context.h"

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
  void on_rank_left(uint32_t rank, uint64_t entered);

  // Calls that all local ranks have entered / that are finished on this node.
  uint64_t calls_entered() const { return next_call_; }
  uint64_t pieces_exchanged() const { return exchanged_; }
  bool idle() const { return calls_.empty(); }
  // Local ranks (by rank) that have not entered call `sequence`.
  std::vector<uint32_t> late(uint64_t sequence) const;

 private:
  struct ActiveCall {
    uint64_t sequence;
    session::Call call;
    session::Plan plan;
    uint64_t first_piece;
  };
  class Slot;

  bool read_calls();
  bool accept_call(uint64_t sequence);
  bool launch();
  void start(const ActiveCall& call, uint64_t piece);
  bool publish();
  void grant();
  void compare(uint64_t sequence);
  void check_left(uint64_t sequence);

  GroupContext& context_;
  uint64_t next_call_ = 0;   // first call not read yet
  uint64_t next_piece_ = 0;  // first piece not started yet
  uint64_t exchanged_ = 0;
  std::deque<ActiveCall> calls_;                        // entered, not finished
  std::map<uint64_t, CallNote> notes_;                  // of the previous node, not compared yet
  std::map<uint64_t, session::Call> entered_;           // ours, not compared yet
  std::vector<std::pair<uint32_t, uint64_t>> left_;     // rank, calls it entered
  std::array<std::unique_ptr<Slot>, session::kSlots> slots_;
  struct HeldWrite {
    uint64_t piece;
    const void* data;
    size_t bytes;
    uint64_t offset;
    transport::LinkHeader header;
    WriteToken token;
  };
  struct PeerCredit {
    uint64_t granted_to_us = session::kSlots;
    uint64_t granted_by_us = session::kSlots;
    bool sends_to_us = false;       // in the latest schedule
    std::vector<HeldWrite> held;    // wait for credit
  };
  std::vector<PeerCredit> credit_;
};

}  // namespace hdt::daemon
