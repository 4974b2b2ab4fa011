// submit.h: what the calls of the C interface have in common. A call goes through these steps:
// 1. Check the arguments (check(), check_rank()); nothing has happened if they are wrong.
// 2. Submit operations to the communicator, inside submit().
// 3. Wait for them, or file them with the thread's hdtGroupStart group, or hand them out as a request.
//
// Everything here may be called from any thread.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "base/fork_mark.h"
#include "libclient/api/handles.h"
#include "libclient/api/last_error.h"
#include "libclient/common/out_of_memory.h"

namespace hdt::client {

// Runs `body`. An exception of it becomes a result, as none may cross the C interface: `end` gets the
// reason, which is kSystem for no memory and for what the system refuses, and kInternal for anything else.
template <typename Body, typename End>
hdtResult_t guarded(Body body, End end) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return end(out_of_memory());
  } catch (const std::system_error& error) {  // a lock, a file: the system has refused it
    return end(Status(Code::kSystem, error.what()));
  } catch (const std::exception& error) {
    return end(Status(Code::kInternal, error.what()));
  }
}
template <typename Body>
hdtResult_t guarded(Body body) {
  return guarded(body, [](const Status& why) { return report(why); });
}
// The same for work on an operation. The other ranks wait for this rank's part in it, so the communicator
// fails on all ranks. The operation has ended when this returns: its buffers are the caller's again.
template <typename Body>
hdtResult_t guarded_for(Communicator& communicator, Body body) {
  return guarded(body, [&communicator](const Status& why) {
    return guarded([&] { return report(communicator.abandon(why)); });
  });
}

// HDT_ERR_INVALID_USAGE, for a process that was forked from one that uses HDT. Entry points that pass
// neither check() nor first_guarded() (api_group.cc) ask forked() themselves.
inline hdtResult_t refuse_copy() { return report(copy_refused()); }

// The buffers of a call, for check(). A null buffer is fine if nothing is read from it (`sends` is
// false) or written to it (`receives` is false).
struct Buffers {
  const void* send = nullptr;
  bool sends = false;
  const void* recv = nullptr;
  bool receives = false;
};
// The checks that every operation begins with. kInvalidUsage: this is a forked copy. kInvalidArgument:
// an ended handle, an unknown type, a null buffer with a count above 0, or a count so large that the
// bytes of all ranks could not be counted. `count` is for one rank.
Status check(const CommRef& comm, const Buffers& buffers, size_t count, hdtDataType_t type);
// `rank` must be one of the group's; `what` names the argument in the message. kInvalidArgument
// otherwise. `comm` must be valid.
Status check_rank(const CommRef& comm, int rank, const char* what);

// `comm` must be valid for the first two.
inline uint32_t rank_of(const CommRef& comm) { return comm->communicator->options().rank; }
inline uint32_t ranks_of(const CommRef& comm) { return comm->communicator->options().ranks; }
inline bool is_me(const CommRef& comm, int rank) {
  return comm.valid() && static_cast<int>(rank_of(comm)) == rank;
}

// The arguments of a collective as a Call. They have been checked.
ipc::Call call_of(collectives::Collective what, size_t count, hdtDataType_t type, collectives::ReduceOp op,
                  int root);

// Whether this thread is between hdtGroupStart and the hdtGroupEnd that belongs to it; groups nest.
bool in_group();
void group_start();
// Ends the innermost group. The outermost end waits for every operation of this thread's group that has
// no request, and returns the first failure.
hdtResult_t group_end();

// submit() with `post` as a pointer and a function that calls it: making a std::function might need memory,
// which must not be missing outside of guarded_for().
hdtResult_t submit_by(const CommRef& comm, hdtRequest_t* request, const void* post,
                      Result<Posting> (*call)(const void* post, Communicator& communicator));

// Runs `post`, which submits operations. If `request` is null and the thread is in no group, it waits
// for them and returns how they ended. If the thread is in a group, they are filed with it; if `request`
// is not null, it becomes a handle. In both cases submit() returns at once, and an operation's failure is
// reported by the end of the group or by the request. `*request` is only written on success. `comm` must
// be valid.
template <typename Post>
hdtResult_t submit(const CommRef& comm, hdtRequest_t* request, const Post& post) {
  return submit_by(comm, request, &post, [](const void* p, Communicator& communicator) {
    return Result<Posting>((*static_cast<const Post*>(p))(communicator));
  });
}

// Waits for all operations of the request, until the deadline. Returns the first failure, but only when
// no operation is pending any more; so the buffers are the caller's again. kTimeout with operations
// still pending: the deadline has passed.
Status wait_all(const hdtRequest& request, const Deadline& deadline);

}  // namespace hdt::client
