// refused_meetings.h: remembers for a minute why groups were not made, for members that come late.
// Without it a rank that joins after the others have been refused would start a group of its own and wait
// for them until its deadline.
//
// The same key may be tried again by another run of the job: a process that was started after the failure
// belongs to that run and is not refused.
//
// Owner and thread: Rendezvous and GroupMaker have one each; the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/status.h"
#include "ipc/messages.h"

namespace hdt::daemon {

class RefusedMeetings {
 public:
  // Remembers that the group with this key was refused now. A later refusal of the key replaces an
  // earlier one. At most 1024 are kept; the oldest goes first.
  void remember(const ipc::GroupKey& key, const Status& why);
  // Why a process that has existed for `process_age_ms` (ms) is refused; nothing: it is not.
  std::optional<Status> find(const ipc::GroupKey& key, int64_t process_age_ms) const;
  // The same for a key that the same processes may use again (Meeting::kAgain): each rank but `informed`,
  // which know it, is refused once.
  void remember_once(const ipc::GroupKey& key, const Status& why, std::set<uint32_t> informed);
  // Why that rank is refused; nothing: it is not. A rank that knows the refusal tries anew, so from then on
  // nobody is refused for it.
  std::optional<Status> find_once(const ipc::GroupKey& key, uint32_t rank);

 private:
  struct Refusal {
    Status why;
    // now_ns() of the refusal
    int64_t at_ns = 0;
    // Only of those by remember_once(): the ranks that know it.
    std::set<uint32_t> informed = {};
  };
  using Refusals = std::map<ipc::GroupKey, Refusal>;
  static void keep(Refusals& refusals, const ipc::GroupKey& key, Refusal refusal);
  Refusals refusals_;
  Refusals once_;
};

}  // namespace hdt::daemon
