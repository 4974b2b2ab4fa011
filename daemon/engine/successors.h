// successors.h: daemons that were started again, as an engine meets them (docs/design/restart.md). The
// successor of a daemon announces itself (peer_rediscovery.h); Control calls meet() for each group that it
// names. The successor then takes the place of its predecessor in the group, and the two nodes connect as
// when a group is made.
//
// Order: all links to the predecessor must be down before the group connects to the successor. A byte of the
// predecessor that still lands would otherwise come after this node has reported what it has.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/status.h"
#include "daemon/group/group_table.h"
#include "daemon/group/link_chooser.h"
#include "daemon/links/link_table.h"

namespace hdt::daemon {

class Successors {
 public:
  // All must outlive this object.
  Successors(const LinkSettings& settings, GroupTable& groups, LinkTable& links, LinkChooser& chooser)
      : settings_(settings), groups_(groups), links_(links), chooser_(chooser) {}

  // The result of meet(). `failure` says why the group does not go on with that node; OK: it does.
  struct Met {
    Status failure;
    int32_t rank = -1;
  };
  // The successor of a daemon takes the place of node `from` in a group of this engine, where this node is
  // `me`. `own` and `info` say where the two can be reached as the class is now. `tell_failure`: connect a
  // group that has failed here as well, so that the other node hears of it. Nothing: the engine has no such
  // group.
  std::optional<Met> meet(uint64_t group, uint32_t me, uint32_t from, const NodeInfo& own,
                          const NodeInfo& info, bool tell_failure = false);
  // A link has ended: takes in the successors that have waited for that.
  void on_link_down();
  // The group has ended.
  void end(uint64_t group);

 private:
  // Takes the successor in, if no link to its predecessor is left.
  void take_in(EngineGroup& group, uint32_t node);

  const LinkSettings& settings_;
  GroupTable& groups_;
  LinkTable& links_;
  LinkChooser& chooser_;
  // those that have come while links to their predecessors were open, by group and node
  std::map<std::pair<uint64_t, uint32_t>, NodeInfo> waiting_;
};

}  // namespace hdt::daemon
