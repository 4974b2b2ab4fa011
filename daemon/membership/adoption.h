// adoption.h: groups that a daemon takes over from its predecessor (docs/design/restart.md). Their ranks
// hand over the shared memory of the group, and everything that the predecessor knew is read from it. The
// memory is foreign: what is read from it is copied and checked once, for the rank that brings it first.
// For later ranks only the identity of the file counts.
//
// A process that holds a group's memory got it from a daemon. So memory is accepted only if a daemon of this
// daemon's user made it and it has exactly the size that its geometry needs. Nobody can make groups here
// out of his own files.
//
// Owner: Restarts; the control thread.
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

// The maximum number of groups of one user that a daemon takes over: as many as a node's ranks can be in.
inline constexpr size_t kMostAdoptedGroups = 1024;

class Adoption {
 public:
  // A group that a rank has brought.
  struct Found {
    // the group's id, from its memory
    uint64_t id = 0;
    // the mapped memory; null: another rank has brought the group before
    std::shared_ptr<SharedMemory> memory;
    // the checked copy of the header; set exactly if `memory` is
    std::optional<ipc::Description> group;
  };
  // Finds the group whose memory this is, for the rank that the request names, whose process is of user
  // `uid`. Each rank is accepted once. kInvalidUsage: the memory or the rank does not fit; kSystem: a
  // limit is reached; other codes come from SharedMemory::map() and Description::read().
  Result<Found> find(const ipc::AdoptRequest& request, uint32_t uid, UniqueFd memory);
  // Makes the description with which an engine goes on with a group that was found for the first time.
  // `node` is this daemon. kInvalidArgument: the members in the memory make no sense. kDaemonLost: the
  // predecessor died while the group was made, so there is nothing to go on with.
  Result<GroupSpec> describe(const Found& group, const NodeInfo& node) const;

 private:
  // A group that some rank has brought. The entry is dropped when the group's memory is freed here.
  struct Known {
    uint64_t id;
    std::weak_ptr<SharedMemory> memory;
    uint32_t engine;
    uint32_t uid;
    // by local index: the rank has come back
    std::vector<bool> taken;
  };
  // by the file that the memory is
  std::map<std::pair<dev_t, ino_t>, Known> known_;
};

}  // namespace hdt::daemon
