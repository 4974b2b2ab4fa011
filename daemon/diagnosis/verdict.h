// verdict.h: why a group does not come forward: a pure function of the facts that its nodes have told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/protocol/facts.h"

namespace hdt::daemon {

// The worst first: so verdicts are ordered.
enum class Cause : uint8_t {
  kDeadRank,           // its process is gone
  kUnreachableDaemon,  // a node's daemon does not answer
  kDaemonEnded,
  kLeftEarly,  // a rank left the group before a call that needs it
  kAborted,
  kMismatchedCall,    // ranks call different things
  kWrongOrder,        // ranks wait for each other in a circle
  kStoppedProcess,    // by a signal or a debugger
  kLateRank,          // it has not entered what others are in
  kUnmatchedMessage,  // sent and not received, or the other way round
  kDeadLink,          // no rail between two nodes works
  kDeadRail,          // some do
  kSlowRail,
  kDeadline,  // passed; what was known then is in the sentence
  kFailed,    // in another way; what the group's failure says
  kStuck,     // all have entered, and nothing moves
  kUnderWay,
  kNothingToDo,
};

const char* name_of(Cause cause);  // "late rank"
bool is_trouble(Cause cause);

struct Verdict {
  Cause cause = Cause::kNothingToDo;
  std::string group_id, group;  // group: "group 1a2b3c4d (class dp)"
  std::string group_class;
  std::vector<uint32_t> ranks;  // that it is about
  std::string node;             // that it is about; "": none, or several
  std::string operation;        // "call 3 (barrier)"
  double waiting_s = 0;         // how long others have waited
  std::string sentence;
};

// So many ranks a sentence names before it says "and n more".
inline constexpr size_t kNamedRanks = 16;

// One verdict for each group, the worst first. `facts[0]` are those of the node that asks; the others' clocks
// are turned into its one.
std::vector<Verdict> judge(const std::vector<NodeFacts>& facts);

}  // namespace hdt::daemon
