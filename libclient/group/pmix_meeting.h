// pmix_meeting.h: the meeting of a job's ranks through PMIx: rank 0 publishes an id under the group's name,
// and the other ranks fetch it. If rank 0 cannot make one, it publishes the reason instead, as the others
// wait for it until their deadline. The object is of one attempt to make one group, and of one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "libclient/daemon_client/session.h"
#include "libclient/group/unique_id.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

class PmixMeeting {
 public:
  // `number`: of the job's group, counted alike on all ranks.
  PmixMeeting(uint64_t number, int64_t timeout_ms)
      : number_(number), deadline_(Deadline::after_ms(timeout_ms)) {}
  // The id of the group; rank 0 meets the others at the daemon of `session`. Fills in the job's size if the
  // variables do not say it. Waits for rank 0 until the deadline (kTimeout). May be called again: what was
  // found or published stays.
  Result<IdContents> id(Session& session, Job& job);
  // For rank 0, which has failed: unless the id was published, the others get the reason. They wait until
  // their deadline if the PMIx server does not take that either.
  void give_up(const Status& why);

 private:
  Result<IdContents> make(Session& session);

  uint64_t number_;
  Deadline deadline_;
  std::optional<IdContents> contents_;
  bool published_ = false;
};

}  // namespace hdt::client
