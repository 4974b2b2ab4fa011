// api_group.cc: the C interface of the library as a whole and of groups. The functions here check
// arguments and read configs; libclient/group/bootstrap.h makes the groups. A function that makes a
// group sets *comm to NULL first, so that a failure leaves no stale handle behind.
#include <cstdlib>
#include <mutex>
#include <span>

#include "base/log.h"
#include "hdt/hdt.h"
#include "libclient/api/submit.h"
#include "libclient/group/bootstrap.h"
#include "libclient/group/unique_id.h"

using hdt::Code;
using hdt::Result;
using hdt::Status;
using hdt::client::CommRef;
using hdt::client::Communicator;
using hdt::client::report;

namespace {

// The library's log begins with the first call, not when the library is loaded: a program may set
// HDT_LOG_LEVEL before that. A wrong level is no reason to fail a call.
void start_logging() {
  static std::once_flag once;
  std::call_once(once, [] { (void)hdt::init_client_log(std::getenv("HDT_LOG_LEVEL")); });  // NOLINT
}

// Turns a communicator into a handle. A null communicator is that of a rank without a color, which gets
// NULL. The others have the group, so it fails on all ranks where there is no memory for the handle.
hdtResult_t hand_out(Result<std::shared_ptr<Communicator>> made, hdtComm_t* comm) {
  if (!made.is_ok()) return report(made.status());
  const std::shared_ptr<Communicator> communicator = made.take();
  if (communicator == nullptr) return HDT_SUCCESS;
  return hdt::client::guarded_for(*communicator, [&] {
    *comm = hdt::client::make_handle(communicator);
    return HDT_SUCCESS;
  });
}

// For calls that may be a program's first ones. A forked copy is refused. Otherwise the process is
// marked before anything of HDT is made, so that copies that are forked later know what they are
// (base/fork_mark.h).
template <typename Body>
hdtResult_t first_guarded(Body body) {
  if (hdt::forked()) return hdt::client::refuse_copy();
  return hdt::client::guarded([&] {
    // The order matters: the log, and everything in `body`, may make threads and descriptors.
    const Status marked = hdt::mark_use();
    if (!marked.is_ok()) return report(marked);
    start_logging();
    return body();
  });
}

hdtResult_t null_argument(const char* what) {
  return report(Status(Code::kInvalidArgument, std::string(what) + " is null"));
}

}  // namespace

hdtResult_t hdtGetVersion(int* version) {
  if (version == nullptr) return null_argument("version");
  *version = HDT_VERSION;
  return HDT_SUCCESS;
}

// code_text() has a text for numbers that are no code, too.
const char* hdtGetErrorString(hdtResult_t result) { return hdt::code_text(static_cast<Code>(result)); }

const char* hdtGetLastError(void) { return hdt::client::last_error(); }

// There is no config here, so the daemon is the one that a config of NULL leads to.
hdtResult_t hdtGetUniqueId(hdtUniqueId_t* id) {
  if (id == nullptr) return null_argument("id");
  return first_guarded([&] {
    const auto made = hdt::client::make_unique_id();
    if (!made.is_ok()) return report(made.status());
    *id = made.value();
    return HDT_SUCCESS;
  });
}

hdtResult_t hdtDeriveUniqueId(hdtUniqueId_t* id, const hdtUniqueId_t* base, uint64_t number) {
  if (id == nullptr) return null_argument("id");
  if (base == nullptr) return null_argument("base");
  return first_guarded([&] {
    const auto made = hdt::client::derive_id(*base, number);
    if (!made.is_ok()) return report(made.status());
    *id = made.value();
    return HDT_SUCCESS;
  });
}

// The steps are the same in all calls that make a group:
// 1. Check the arguments.
// 2. Settings: the config's fields, over the environment (or the parent's options), over the defaults.
// 3. Join, and hand out the handle.
hdtResult_t hdtCommInitRank(hdtComm_t* comm, int nranks, hdtUniqueId_t id, int rank,
                            const hdtCommConfig_t* config) {
  if (comm == nullptr) return null_argument("comm");
  *comm = nullptr;
  if (nranks < 1 || rank < 0 || rank >= nranks) {
    return report(
        Status(Code::kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(nranks)));
  }
  return first_guarded([&] { return hand_out(hdt::client::join_by_id(id, nranks, rank, config), comm); });
}

// The rank, the size and the meeting place come from the launcher's variables (launch/environment.h).
hdtResult_t hdtCommInit(hdtComm_t* comm, const hdtCommConfig_t* config) {
  if (comm == nullptr) return null_argument("comm");
  *comm = nullptr;
  return first_guarded([&] { return hand_out(hdt::client::join_job(config), comm); });
}

// The parent's settings are the defaults. A rank that fails in the checks has not taken part in the
// split, and the other ranks wait for it. One that has no memory fails the parent, as in any other call;
// once the parent's part is over, it fails the new group.
hdtResult_t hdtCommSplit(hdtComm_t handle, int color, int key, hdtComm_t* newcomm,
                         const hdtCommConfig_t* config) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (newcomm == nullptr) return null_argument("newcomm");
  *newcomm = nullptr;
  // Other negative colors are kept free for later meanings.
  if (color < 0 && color != HDT_SPLIT_NO_COLOR) {
    return report(Status(Code::kInvalidArgument, "color " + std::to_string(color) + " is negative"));
  }
  return first_guarded([&] {
    return hdt::client::guarded_for(*comm->communicator, [&] {
      const auto wishes = hdt::client::wishes_of_child(*comm->communicator, config);
      if (!wishes.is_ok()) return report(wishes.status());
      return hand_out(hdt::client::split(*comm->communicator, color, key, wishes.value()), newcomm);
    });
  });
}

// The set is checked here, so that shrink() may rely on it. Duplicates are allowed.
hdtResult_t hdtCommShrink(hdtComm_t handle, const int excluded[], int count, hdtComm_t* newcomm,
                          const hdtCommConfig_t* config) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (newcomm == nullptr) return null_argument("newcomm");
  *newcomm = nullptr;
  if (count < 0)
    return report(
        Status(Code::kInvalidArgument, "count is " + std::to_string(count) + "; expected 0 or more"));
  if (excluded == nullptr && count > 0) return null_argument("excluded");
  return first_guarded([&] {
    const auto& parent = comm->communicator->options();
    for (int i = 0; i < count; ++i) {
      const int rank = excluded[i];
      if (rank < 0 || static_cast<uint32_t>(rank) >= parent.ranks)
        return report(
            Status(Code::kInvalidArgument, "excluded rank " + std::to_string(rank) + " is not in the group"));
      if (static_cast<uint32_t>(rank) == parent.rank)
        return report(
            Status(Code::kInvalidArgument, "rank " + std::to_string(rank) + " cannot exclude itself"));
    }
    const std::span<const int> all(excluded, static_cast<size_t>(count));
    return hand_out(hdt::client::shrink(*comm->communicator, all, config), newcomm);
  });
}

// The handle ends first, so that calls of other threads that come later find nothing; calls that are
// under way keep the body, and find the communicator left. leave() waits for this rank's operations.
hdtResult_t hdtCommDestroy(hdtComm_t handle) {
  if (handle == nullptr) return HDT_SUCCESS;
  return first_guarded([&] {
    const CommRef comm(handle);
    if (!comm.valid()) return report(comm.status());
    // Another thread is destroying it. The second look gives the words for an ended handle.
    if (!comm.end()) return report(CommRef(handle).status());
    comm->communicator->leave();
    return HDT_SUCCESS;
  });
}

// The operations themselves end in whichever thread waits for them.
hdtResult_t hdtCommAbort(hdtComm_t handle) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  return first_guarded([&] { return report(comm->communicator->abort()); });
}

hdtResult_t hdtCommGetAsyncError(hdtComm_t handle, hdtResult_t* async_error) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (async_error == nullptr) return null_argument("async_error");
  if (hdt::forked()) return hdt::client::refuse_copy();
  // The failure is read from the group's shared memory; no lock is taken and nothing is waited for.
  *async_error = static_cast<hdtResult_t>(comm->communicator->failure().code());
  return HDT_SUCCESS;
}

// This call has no code to return, so each kind of handle has a text of its own.
const char* hdtCommErrorMessage(hdtComm_t handle) {
  if (hdt::forked()) return hdt::copy_text();
  const CommRef comm(handle);
  if (handle == nullptr) return "";
  if (!comm.valid()) return "this is no communicator: it has been destroyed, or was never made";
  // A failure is set once and never changes, so a text that was handed out stays right, and a caller's
  // pointer into it stays valid.
  const char* text = "there is no memory for the failure's text";
  (void)hdt::client::guarded([&] {
    const std::lock_guard lock(comm->error_mutex);
    if (comm->error_text.empty()) comm->error_text = comm->communicator->failure().message();
    text = comm->error_text.c_str();
    return HDT_SUCCESS;
  });
  return text;
}

hdtResult_t hdtCommSetTimeout(hdtComm_t handle, int64_t timeout_ms) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (timeout_ms < 1)
    return report(Status(Code::kInvalidArgument,
                         "timeout_ms is " + std::to_string(timeout_ms) + "; expected 1 or more"));
  if (hdt::forked()) return hdt::client::refuse_copy();
  comm->communicator->set_timeout(timeout_ms);
  return HDT_SUCCESS;
}

hdtResult_t hdtCommSetSamples(hdtComm_t handle, uint64_t samples) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (hdt::forked()) return hdt::client::refuse_copy();
  comm->communicator->rank_state().samples.store(samples, std::memory_order_relaxed);
  return HDT_SUCCESS;
}

hdtResult_t hdtCommFailedRank(hdtComm_t handle, int* rank) {
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (rank == nullptr) return null_argument("rank");
  if (hdt::forked()) return hdt::client::refuse_copy();
  *rank = comm->communicator->failed_rank();
  return HDT_SUCCESS;
}

// The following four only read what does not change during the life of the communicator.
hdtResult_t hdtCommCount(hdtComm_t handle, int* nranks) {
  if (hdt::forked()) return hdt::client::refuse_copy();
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (nranks == nullptr) return null_argument("nranks");
  *nranks = static_cast<int>(comm->communicator->options().ranks);
  return HDT_SUCCESS;
}

hdtResult_t hdtCommUserRank(hdtComm_t handle, int* rank) {
  if (hdt::forked()) return hdt::client::refuse_copy();
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (rank == nullptr) return null_argument("rank");
  *rank = static_cast<int>(comm->communicator->options().rank);
  return HDT_SUCCESS;
}

hdtResult_t hdtCommNodes(hdtComm_t handle, int* nodes) {
  if (hdt::forked()) return hdt::client::refuse_copy();
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (nodes == nullptr) return null_argument("nodes");
  *nodes = static_cast<int>(comm->communicator->access().layout().nodes);
  return HDT_SUCCESS;
}

// `order` is a table of the group, made once; no message is sent.
hdtResult_t hdtCommNodeOf(hdtComm_t handle, int rank, int* node) {
  if (hdt::forked()) return hdt::client::refuse_copy();
  const CommRef comm(handle);
  if (!comm.valid()) return report(comm.status());
  if (node == nullptr) return null_argument("node");
  const auto& access = comm->communicator->access();
  if (rank < 0 || static_cast<uint32_t>(rank) >= access.layout().ranks) {
    return report(Status(Code::kInvalidArgument, "rank " + std::to_string(rank) + " is not in the group"));
  }
  *node = static_cast<int>(access.order.node_of_rank[static_cast<uint32_t>(rank)]);
  return HDT_SUCCESS;
}
