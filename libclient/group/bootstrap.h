// bootstrap.h: making communicators: from a unique id, from the job's environment, by splitting, by
// shrinking. Each function finds the process's daemon (daemon_client/daemon_finder.h), computes the key
// by which the ranks of the new group know each other, and joins through the daemon. All of them block
// until the group is made, or until its deadline. Any thread may call them; the api layer is the only
// caller.
//
// The others wait for a rank that has no memory for what it needs to join. So `config` is read here, where
// the reason is sent to them. Errors of it are those of read_config(); it may be null.
//
// Errors of all: kNoDaemon, kDaemonLost, kVersion and kSystem of finding and using a daemon; kTimeout,
// kMismatch, kRankLost, kLink, kNoBackend, kConfig and kInvalidUsage of the group that could not be made
// (see hdt.h).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "hdt/hdt.h"
#include "libclient/group/communicator.h"

namespace hdt::client {

// The settings of a group that is to be made: from the caller's config, from the environment, or by
// default.
struct Wishes {
  std::string group_class = "default";
  // The daemon's socket; "": the usual search.
  std::string socket;
  // Deadline of the making and of each operation, in ms. More than 0.
  int64_t timeout_ms = 600'000;
  bool deterministic = false;
};
// `defaults`, with what the caller's config says in their place. `config` may be null. kInvalidArgument:
// it was not made from HDT_COMM_CONFIG_INIT, or a field is out of range.
Result<Wishes> read_config(const hdtCommConfig_t* config, const Wishes& defaults);
// The defaults, with HDT_TIMEOUT_MS. kConfig: that variable is no positive number.
Result<Wishes> default_wishes();
// The settings of a group that is made of `parent`: the parent's are the defaults. Errors of read_config().
Result<Wishes> wishes_of_child(const Communicator& parent, const hdtCommConfig_t* config);

// An id with a random secret and the addresses of this process's daemon.
Result<hdtUniqueId_t> make_unique_id();
// hdtCommInitRank. 0 <= rank < ranks; the caller has checked that. kInvalidArgument: the id was not made
// by make_unique_id().
Result<std::shared_ptr<Communicator>> join_by_id(const hdtUniqueId_t& id, int ranks, int rank,
                                                 const hdtCommConfig_t* config);
// hdtCommInit: rank, size and meeting place come from the launcher's variables (launch/environment.h).
Result<std::shared_ptr<Communicator>> join_job(const hdtCommConfig_t* config);
// hdtCommSplit: an allgather on the parent, then a join. Null for a rank without a color. If the parent
// has failed, its failure.
Result<std::shared_ptr<Communicator>> split(Communicator& parent, int color, int key, const Wishes& wishes);
// hdtCommShrink: a group of the parent's ranks without `excluded` (each below the number of ranks, not
// this one). No operation of the parent is used, so it may have failed.
Result<std::shared_ptr<Communicator>> shrink(Communicator& parent, std::span<const int> excluded,
                                             const hdtCommConfig_t* config);

}  // namespace hdt::client
