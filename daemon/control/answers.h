// answers.h: answers to hdtctl: the daemon's status, why a call takes the algorithm that it takes, and how
// two nodes are linked. Each collects its parts on the engines and puts them together on the control thread.
// By then the session may have ended; sending to it does nothing.
//
// Owner: ControlParts; the control thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/control/control_parts.h"

namespace hdt::daemon {

class Answers {
 public:
  explicit Answers(ControlParts& daemon) : daemon_(daemon) {}

  // kStatus: what this daemon is and does, as far as the viewer may see it.
  void status(uint64_t session);
  // kExplain: the algorithm of a call in the one group that is meant.
  void explain(uint64_t session, const ipc::ExplainRequest& request);
  // kAsk: hands a question on by its kind (ipc::Question).
  void ask(uint64_t session, const ipc::Question& question);

 private:
  // `hdtctl explain link`: which links exist or were tried to a node, and why.
  void link(uint64_t session, const std::string& node);
  // The resources that the daemon itself uses: descriptors, ports, threads, memory. They count all users,
  // also if the viewer sees only its own groups: these numbers identify nobody.
  nlohmann::json own_use(size_t groups) const;

  ControlParts& daemon_;
};

}  // namespace hdt::daemon
