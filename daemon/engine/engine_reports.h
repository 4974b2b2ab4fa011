// engine_reports.h: what an engine says about itself: to `hdtctl status` and `hdtctl explain` as JSON, and
// to diagnosis (facts.h) as values. The names of the JSON's fields are those that hdtctl and tests read. A
// viewer who may not see all groups sees those of its own user, and of the others how many there are.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "daemon/engine/session_table.h"
#include "daemon/group/group_table.h"
#include "daemon/group/link_chooser.h"
#include "daemon/links/link_table.h"
#include "daemon/protocol/facts.h"
#include "daemon/protocol/viewer.h"

namespace hdt::daemon {

// Reads the other parts and changes none of them, except that a tuner may keep a prediction that it has
// made.
class EngineReports {
 public:
  // All must outlive this object.
  EngineReports(const GroupTable& groups, const Devices& devices, const LinkTable& links,
                const LinkChooser& chooser, const SessionTable& sessions)
      : groups_(groups), devices_(devices), links_(links), chooser_(chooser), sessions_(sessions) {}

  // The groups that the viewer sees, the links that these use, and how many more there are.
  nlohmann::json status(const Viewer& viewer) const;
  // The algorithm that the call takes, and why, in each group with this name or of this class that the viewer
  // sees (daemon/group/explanation.h). `name`: a group's id as status shows it, or a class.
  nlohmann::json explain(const std::string& name, const ipc::Call& call, const Viewer& viewer) const;
  // The candidates for the link to that node, and the choice, for each class with groups on it now or lately.
  nlohmann::json explain_link(const std::string& node, const Viewer& viewer) const;
  // All groups that are ready, also those that have failed, and all rails, also lost ones; not complete()
  // yet.
  std::vector<GroupFacts> groups() const;
  std::vector<RailFacts> rails() const;
  // One group, with the processes of this engine's sessions.
  GroupFacts facts_of(const EngineGroup& group) const;
  // For each group that is being made, by its id: in words, what it lacks of each node.
  std::map<std::string, std::vector<std::string>> lacks() const;

 private:
  const GroupTable& groups_;
  const Devices& devices_;
  const LinkTable& links_;
  const LinkChooser& chooser_;
  const SessionTable& sessions_;
};

}  // namespace hdt::daemon
