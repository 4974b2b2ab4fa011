// adoption.h: groups that a daemon takes over from its predecessor: their ranks hand over the shared memory,
// from which everything is read that the predecessor knew. The memory is foreign: what is read from it is
// copied and checked, once, by the rank that brings it first; of later ranks only which file it is counts.
//
// Whoever holds a group's memory has been given it by a daemon. So memory is taken only if a daemon of this
// one's user made it, and it has exactly the size that its geometry needs: nobody makes groups here out of
// files of his own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "daemon/group/engine_group.h"
#include "ipc/messages.h"
#include "ipc/segment.h"

namespace hdt::daemon {

// What one user may have a daemon take over: as many groups as a node's ranks can be in.
inline constexpr size_t kMostAdoptedGroups = 1024;

class Adoption {
 public:
  struct Found {
    uint64_t id = 0;
    std::shared_ptr<SharedMemory> memory;       // null: another rank has brought the group before
    std::optional<session::Description> group;  // with `memory`
  };
  // The group whose memory this is, for the rank of the request, whose process is of user `uid`. Each rank is
  // taken once.
  Result<Found> find(const session::AdoptRequest& request, uint32_t uid, UniqueFd memory);
  // What an engine needs to go on with a group that was found for the first time. `node` is this daemon.
  Result<GroupSpec> describe(const Found& group, const NodeInfo& node) const;

 private:
  struct Known {
    uint64_t id;
    std::weak_ptr<SharedMemory> memory;
    uint32_t engine;
    uint32_t uid;
    std::vector<bool> taken;  // by local index
  };
  std::map<std::pair<dev_t, ino_t>, Known> known_;  // by the file
};

}  // namespace hdt::daemon
