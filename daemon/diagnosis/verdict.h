// verdict.h: why a group does not make progress: a pure function of the facts that its nodes have
// reported. It goes from what is certain to what is guessed, and takes the first cause that the facts
// show (docs/design/diagnosis.md). The facts of other nodes are foreign, so any text or time in them may
// be wrong; nothing here fails because of that.
//
// Used by Control for hdtctl why and for the failure of a group whose rank's deadline has passed.
// Thread-safe, as nothing is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/protocol/facts.h"

namespace hdt::daemon {

// Causes, the worst first, so that verdicts can be ordered by them.
enum class Cause : uint8_t {
  // a rank's process has ended without leaving the group
  kDeadRank,
  // a node's daemon does not answer
  kUnreachableDaemon,
  // the group failed because a daemon was stopped
  kDaemonEnded,
  // a rank departed before a call that needs it
  kDepartedEarly,
  // a rank has aborted the group
  kAborted,
  // two ranks are in the same call with different arguments
  kMismatchedCall,
  // ranks wait for each other in a circle
  kWrongOrder,
  // a rank's process is stopped, by a signal or a debugger
  kStoppedProcess,
  // a rank has not entered the call that others are in
  kLateRank,
  // a message is sent and not received, or the other way round
  kUnmatchedMessage,
  // no rail between two nodes works
  kLinkDown,
  // a rail between two nodes is down, others work
  kRailDown,
  // a rail carries much less than the best one does for its NIC's speed
  kSlowRail,
  // a rank's deadline has passed; the sentence has what was known then
  kDeadline,
  // the group failed in another way; the sentence has the failure's text
  kFailed,
  // all ranks have entered, and nothing moves
  kStuck,
  // nothing is wrong: ranks are in an operation
  kUnderWay,
  // nothing is wrong: no operation is under way
  kNothingToDo,
};

// The cause as text, e.g. "late rank".
const char* name_of(Cause cause);
// False for the last two causes.
bool is_trouble(Cause cause);

// The judgement of one group.
struct Verdict {
  Cause cause = Cause::kNothingToDo;
  // public name of the group; `group`: the same for people, "group 1a2b3c4d (class dp)"
  std::string group_id, group;
  std::string group_class;
  // the ranks that it is about
  std::vector<uint32_t> ranks;
  // the node that it is about; "": none, or several
  std::string node;
  // the operation that does not end: "call 3 (barrier)"; "": none
  std::string operation;
  // how long others have waited, in seconds
  double waiting_s = 0;
  // one sentence for people, which begins with name_of(cause)
  std::string sentence;
};

// The number of ranks that a sentence names before it says "and n more".
inline constexpr size_t kNamedRanks = 16;

// One verdict for each group, the worst first; groups that have ended come after those that run. `facts`
// must not be empty. facts[0] are those of the node that asks; the other nodes' times are translated to
// its clock.
std::vector<Verdict> judge(const std::vector<NodeFacts>& facts);

}  // namespace hdt::daemon
