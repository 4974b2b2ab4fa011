// adoption.h: groups that a daemon takes over from its predecessor: their ranks hand over the shared memory, from which
// everything is read that the predecessor knew. The memory is foreign: what is read from it is copied and checked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "base/shared_memory.h"
#include "daemon/engine_group.h"
#include "session/messages.h"
#include "session/segment.h"

namespace hdt::daemon {

class Adoption {
 public:
  struct Found {
    uint64_t id = 0;
    std::shared_ptr<SharedMemory> memory;  // null: another rank has brought the group before
    session::Segment segment;
  };
  // The group whose memory this is, for the rank of the request.
  Result<Found> find(const session::AdoptRequest& request, UniqueFd memory);
  // What an engine needs to go on with a group that was found for the first time. `node` is this daemon.
  Result<GroupSpec> describe(const Found& group, const NodeInfo& node) const;

 private:
  struct Known {
    std::weak_ptr<SharedMemory> memory;
    dev_t device;
    ino_t inode;
    uint32_t engine;
    uint32_t local_ranks;
  };
  std::map<uint64_t, Known> known_;
};

}  // namespace hdt::daemon
