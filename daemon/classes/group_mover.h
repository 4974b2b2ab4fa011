// group_mover.h: an engine's part in a change of a class while its groups run (class_change.h). It is a
// two-phase commit over all nodes of each group of the class. New links are made beside those in use, and a
// group moves only when all nodes can.
//
// The messages of one group's change, and where they are handled:
//
// 1. propose(): the node that was asked by hdtctl sends ClassPrepare to all others.
// 2. on_message(): each node has Control prepare (ChangeEvents::on_prepare()); prepare() gets the answer and
//    sends ClassEnds to all others.
// 3. find_ways(), try_way(): a pair of nodes that has both ends' ClassEnds gets its new link from the one
//    that dials.
// 4. check(), answer(): a node whose links are all up answers ClassReady; a node that cannot answers with
//    the reason.
// 5. check_proposed(), finish(): with all answers Control decides, and ClassCommit goes to all. move_group()
//    then offers the new links.
// 6. close_drained_links() ends the links that no group uses any more.
//
// GroupMove is the state of one group's change; it ends with the commit or with forget(). Messages of
// different nodes come in any order: ends may come before the question.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/classes/class_change.h"
#include "daemon/group/group_table.h"
#include "daemon/group/link_chooser.h"
#include "daemon/links/link_table.h"

namespace hdt::daemon {

// Reports of changes, which Control hears. Called on the engine's thread.
class ChangeEvents {
 public:
  virtual ~ChangeEvents() = default;
  // Another node asks whether this one can change. prepare() is to follow, or on_commit(false).
  virtual void on_prepare(const NodeChange::Asker& asker, const ClassPrepare& question) = 0;
  // Such a change is decided, or given up.
  virtual void on_commit(uint64_t change, bool commit) = 0;
  // All nodes can do what propose() asked for, or the reason why not.
  virtual void on_proposed(uint64_t change, const Status& answer) = 0;
};

class GroupMover {
 public:
  // All must outlive this object.
  GroupMover(const LinkSettings& settings, GroupTable& groups, Devices& devices, LinkTable& links,
             LinkChooser& chooser, SegmentKeys& keys, ChangeEvents& events)
      : settings_(settings),
        groups_(groups),
        devices_(devices),
        links_(links),
        chooser_(chooser),
        keys_(keys),
        events_(events) {}

  // Asks all nodes of all running groups for which `ends_of` has ends; on_proposed() gets the answer.
  void propose(uint64_t change, const std::string& settings, const EndsOfClass& ends_of);
  // This node's own answer for a group, after on_prepare(): where it can be reached, or why it cannot change.
  void prepare(uint64_t group, uint64_t change, const Result<std::vector<RailEnd>>& ends);
  // The decision on a change that this node has asked for.
  void finish(uint64_t change, bool commit);

  // A message of a change, of another node; other messages have no effect.
  void on_message(EngineGroup& group, uint32_t node, const EngineMessage& message);
  // A link has come up, or has not: what changes that wait for it do.
  void link_up(const PeerLink& peer);
  void link_failed(const LinkId& link, const Status& why);
  // The dialer has sent its hello for a group that has another link: the group moves to this one.
  void follow(EngineGroup& group, uint32_t node, PeerLink& peer, const transport::RegionKey& their_region);
  // Answers yes when every link that this node dials for the change is up.
  void check(EngineGroup& group);
  // Gives up a change that was under way with a node that is suspended, and informs all other nodes.
  void stop(EngineGroup& group, uint32_t node);
  // The group has ended.
  void end(uint64_t group) { forget(group); }
  // Reports to Control when all nodes can do what this one proposes. A group that has ended does not count.
  void check_proposed();
  // Ends links that no group uses any more.
  void close_drained_links();

 private:
  // Finds the candidates for the new link to the node, when both ends are known.
  void find_ways(EngineGroup& group, uint32_t node);
  // Dialer: takes or dials the new link over the next candidate; answers no if there is none.
  void try_way(EngineGroup& group, uint32_t node);
  // Sends this node's answer to the one that asks.
  void answer(EngineGroup& group, const Status& answer);
  // On the node that asks: that node can, or cannot.
  void on_answer(EngineGroup& group, uint32_t node, uint64_t change, const Status& answer);
  // Messages of changes that are over come too late and have no effect.
  bool is_over(uint64_t change) const;
  void remember_over(uint64_t change);
  // Forgets a change of which ends have come, but no question, when another one begins.
  void forget_orphan(uint64_t group, uint64_t change);
  // Gives a change up: its links end if nobody else needs them.
  void forget(uint64_t group);
  // Commits a change: offers the new links to the group.
  void move_group(EngineGroup& group);
  // Where the peer can be reached from now on, for later dials.
  void set_ends(LinkChoice& choice, const std::vector<RailEnd>& ends) const;
  // The choice takes the link `by`; the one before ends when nobody uses it.
  void replace_link(LinkChoice& choice, const PeerLink& by);

  const LinkSettings& settings_;
  GroupTable& groups_;
  Devices& devices_;
  LinkTable& links_;
  LinkChooser& chooser_;
  SegmentKeys& keys_;
  ChangeEvents& events_;
  std::map<uint64_t, GroupMove> moves_;  // by group
  std::deque<uint64_t> over_;            // the last changes that have ended
  std::optional<uint64_t> proposing_;    // the change that this node asks the others for
};

}  // namespace hdt::daemon
