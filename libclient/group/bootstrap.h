// bootstrap.h: making communicators: from a unique id, from the job's environment, by splitting.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "hdt/hdt.h"
#include "libclient/group/communicator.h"

namespace hdt::client {

// What the caller's config (may be null) and the environment say, defaults filled in.
struct Wishes {
  std::string group_class = "default";
  std::string socket;
  int64_t timeout_ms = 600'000;
  bool deterministic = false;
};
Result<Wishes> read_config(const hdtCommConfig_t* config, const Wishes& defaults);
Result<Wishes> default_wishes();

Result<hdtUniqueId_t> make_unique_id();
Result<std::shared_ptr<Communicator>> join_by_id(const hdtUniqueId_t& id, int ranks, int rank,
                                                 const Wishes& wishes);
// hdtCommInit: rank, size and rendezvous from the launcher's variables.
Result<std::shared_ptr<Communicator>> join_job(const Wishes& wishes);
// Null for a rank without a color.
Result<std::shared_ptr<Communicator>> split(Communicator& parent, int color, int key, const Wishes& wishes);
// Of the parent's ranks but `excluded` (each < ranks, not this one).
Result<std::shared_ptr<Communicator>> shrink(Communicator& parent, const std::vector<uint32_t>& excluded,
                                             const Wishes& wishes);

}  // namespace hdt::client
