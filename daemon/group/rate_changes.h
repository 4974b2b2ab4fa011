// rate_changes.h: how the nodes of a running group come to other rates of their links: when a rail is lost or
// comes back, when the group moves to other NICs, and when another class takes a share of a NIC. A schedule
// with unequal parts works only if all nodes run it with the same rates. So all change at the same call:
//
// 1. Each node sends node 0 which parts of their rates its links have, whenever that changes (kNow).
// 2. When nothing has changed for a while, node 0 decides whether other rates are worth it, and proposes a
//    change (kPropose).
// 3. Each node answers up to which call it has read, and reads no further (kHold).
// 4. Node 0 takes the largest of these numbers: no node has read that call. The change begins there, and all
//    learn of it (kCommit). They go on reading; the calls before that one keep the old rates.
// 5. Each node says when all calls before that one are over (kPassed). Node 0 proposes nothing before all
//    have said so. So a node needs at most two sets of rates.
//
// Between 3 and 4 no new call begins on the node, for as long as a message goes to node 0 and back.
//
// Daemons are started again at any moment. Promises (3) and changes (4) stand in the journal before anyone
// hears of them, and a change that is proposed is never withdrawn: a successor of node 0 that finds its own
// promise without the change proposes again, under the next number. A node has one promise at a time, so it
// answers a later proposal with the same call. Whoever meets a node again repeats what that node may not have
// got (on_back()). All messages carry the change's number and may come late or twice.
//
// Owner: EngineGroup; the engine's thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "daemon/protocol/wire.h"
#include "ipc/journal.h"

namespace hdt::daemon {

class RateChanges {
 public:
  using Parts = std::vector<ipc::LinkPart>;
  static constexpr uint64_t kNoCall = std::numeric_limits<uint64_t>::max();
  // What the changes need of their group. RateChanges calls it from within the functions below.
  class Group {
   public:
    virtual ~Group() = default;
    // As GroupContext::send(): dropped where the node has no link.
    virtual void send(uint32_t node, const RateChangeMessage& note) = 0;
    // This daemon, and a predecessor, has read no call from this one on.
    virtual uint64_t first_unread() const = 0;
    // The calls before this one are over on this node.
    virtual uint64_t first_unfinished() const = 0;
    // Calls from `call` on are run with these rates, those before it with the rates as they are.
    virtual void change_rates(uint64_t call, const Parts& parts) = 0;
    // At node 0: whether these rates are enough of an improvement over the present ones.
    virtual bool is_worth(const Parts& parts) const = 0;
    // At node 0: every other node can be reached, and takes part.
    virtual bool all_open() const = 0;
  };

  // Goes on from the journal, which is empty in a new group. `id` is the group's, for messages. `group` must
  // outlive this object, and is not called before the first of the functions below.
  RateChanges(Group& group, uint64_t id, uint32_t me, uint32_t nodes, ipc::Journal journal);

  // The changes that calls under way may need, the older one first: for whoever goes on from the journal.
  const std::vector<ipc::Journal::Change>& before() const { return before_; }
  // No call from this one on may be read now; kNoCall: any may.
  uint64_t hold() const { return promise_.change > number_ ? promise_.hold : kNoCall; }
  // The rates as of the latest change. All whole at first.
  const Parts& parts() const { return parts_; }
  // Takes note of the part of its rates that this node's link to `node` has.
  void set_link(uint32_t node, ipc::LinkPart part, int64_t now_ns);
  // The node, or this one, has been started again, and both are connected.
  void on_back(uint32_t node, int64_t now_ns);
  // A message that came from the node `note.from`. Returns what is wrong with it; "": nothing.
  std::string on_message(const RateChangeMessage& note, int64_t now_ns);
  // Calls may be over.
  void on_progress();
  // What is due; and when, by the same clock.
  void on_time(int64_t now_ns);
  int64_t next_time() const { return propose_at_; }

 private:
  bool proposes() const { return me_ == 0; }
  // At node 0: a predecessor has proposed a change, so nodes wait for one, whether it is worth anything or
  // not.
  bool owes() const { return proposed_ == 0 && promise_.change > number_; }
  // At node 0: the rates by what all nodes have told.
  Parts told() const;
  // Looks at the links again when they have been the same for a while.
  void look_later(int64_t now_ns);
  void propose();
  void on_proposal(uint64_t number);
  void on_hold(uint32_t node, uint64_t number, uint64_t call, int64_t now_ns);
  std::string on_commit(const RateChangeMessage& note);
  // Begins with the change.
  void change(uint64_t number, uint64_t call, const Parts& parts);
  // Promises, or repeats the promise, for the change `number`.
  void promise(uint64_t number);
  bool has_passed() const { return number_ == 0 || passed_here_; }
  void send(uint32_t node, RateChangeMessage::Kind kind, uint64_t number, uint64_t call, const Parts& parts);
  void tell_links();

  Group& group_;
  const uint64_t id_;
  const uint32_t me_;
  const uint32_t nodes_;
  const ipc::Journal journal_;
  std::vector<ipc::Journal::Change> before_;
  // the latest change: its number, its first call, its rates
  uint64_t number_ = 0;
  uint64_t call_ = 0;
  Parts parts_;
  // all calls before `call_` are over here
  bool passed_here_ = false;
  // the latest promise of this node; kept, as long as its change is not here
  ipc::Journal::Promise promise_;
  // the parts of this node's links, and how often they were told
  Parts mine_;
  uint64_t times_told_ = 0;

  // At node 0. By node: the number of its latest kNow, what that said, what it has promised for the change
  // that is proposed, and whether it has sent kPassed for the latest one.
  struct Told {
    uint64_t number = 0;
    Parts parts;
    std::optional<uint64_t> hold;
    bool passed = false;
  };
  std::vector<Told> told_;
  // the change that is proposed and has not begun; 0: none
  uint64_t proposed_ = 0;
  // when to look at the links again; the largest number: not at all
  int64_t propose_at_ = std::numeric_limits<int64_t>::max();
  // no change before this, so that a rail that comes and goes does not change everything all the time
  int64_t next_change_ns_ = 0;
};

}  // namespace hdt::daemon
