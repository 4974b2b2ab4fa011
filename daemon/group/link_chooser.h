// link_chooser.h: which link each group takes to each other node (link_choice.h).
//
// One of the two nodes dials (dials() in node.h). It tries its candidates one after the other: a link that
// exists already, or a new one. When the link is up, the group takes it (take()) and sends its hello on it.
// The other node waits; the hello shows it the choice. If the dialer does not come in time, the group fails
// there.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/group/early_messages.h"
#include "daemon/group/group_table.h"
#include "daemon/group/segment_keys.h"
#include "daemon/links/link_choice.h"
#include "daemon/links/link_table.h"

namespace hdt::daemon {

class LinkChooser {
 public:
  // By the group's id, and the number of the other node in it.
  using Choices = std::map<std::pair<uint64_t, uint32_t>, LinkChoice>;
  // By the other node's name and the class: choices of groups that have ended.
  using PastChoices = std::map<std::pair<std::string, std::string>, LinkChoice>;

  // All must outlive this object.
  LinkChooser(const LinkSettings& settings, GroupTable& groups, Devices& devices, LinkTable& links,
              SegmentKeys& keys, EarlyMessages& early)
      : settings_(settings), groups_(groups), devices_(devices), links_(links), keys_(keys), early_(early) {}

  const Choices& all() const { return choices_; }
  const PastChoices& past() const { return past_; }
  // The choice of a group for a node; made if there is none.
  LinkChoice& choice(const EngineGroup& group, uint32_t node) { return choices_[{group.id(), node}]; }
  // null: there is none.
  const LinkChoice* find(uint64_t group, uint32_t node) const;
  // Some choice has this link, or tries it.
  bool wants(const LinkId& link) const;

  // Chooses a link to every other node, or to one, anew: for a new group, and for the successor of the node's
  // daemon.
  void connect_group(EngineGroup& group);
  void connect_node(EngineGroup& group, uint32_t node);
  // The group takes this link, which is up.
  void take(EngineGroup& group, uint32_t node, PeerLink& peer);
  // A link has come up: groups that wait for it take it.
  void link_up(PeerLink& peer);
  // A link is down, or has never come up: groups that wait for it try the next candidate.
  void link_failed(const LinkId& link, const Status& why);
  // Begins with the next link that the group has to measure. One after another, since several at once would
  // each get a part of the engine.
  void measure_next(EngineGroup& group);
  // The group has ended: its choices are kept for explain_link().
  void end(const EngineGroup& group);
  // Fails groups that a node was to connect in time and has not. And when there may be one.
  void give_up_on_dialers();
  Deadline next_time() const;

 private:
  // Dialer: takes or dials the link over the best candidate that has not failed. When all have failed, the
  // group fails.
  void try_candidates(EngineGroup& group, uint32_t node);
  // Gives the group its link to the node.
  void tell_link_up(EngineGroup& group, uint32_t node, PeerLink& peer);
  void warn_of_shared_names(const GroupContext& context);

  const LinkSettings& settings_;
  GroupTable& groups_;
  Devices& devices_;
  LinkTable& links_;
  SegmentKeys& keys_;
  EarlyMessages& early_;
  Choices choices_;
  PastChoices past_;
  std::set<std::string> shared_names_;  // names of two nodes, that the log has already
};

}  // namespace hdt::daemon
