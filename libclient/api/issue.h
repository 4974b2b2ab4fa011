// issue.h: what the calls of the C interface have in common: checks of arguments, and what becomes of the
// operations that a call has posted: waited for, filed with the thread's group, or handed out as a request.
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

namespace hdt::client {

// With the limit of memory that is in force, if there is one.
Status out_of_memory();

// No exception crosses the C interface.
template <typename Body>
hdtResult_t guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return report(out_of_memory());
  } catch (const std::system_error& error) {  // a lock, a file: the system has refused it
    return report(Status(Code::kSystem, error.what()));
  } catch (const std::exception& error) {
    return report(Status(Code::kInternal, error.what()));
  }
}

// Entry points that pass neither check() nor first use ask this themselves.
inline hdtResult_t refuse_copy() { return report(copy_refused()); }

// A null buffer is fine where nothing is read or written.
struct Buffers {
  const void* send = nullptr;
  bool sends = false;
  const void* recv = nullptr;
  bool receives = false;
};
Status check(const CommRef& comm, const Buffers& buffers, size_t count, hdtDataType_t type);
Status check_rank(const CommRef& comm, int rank, const char* what);

inline uint32_t rank_of(const CommRef& comm) { return comm->communicator->options().rank; }
inline uint32_t ranks_of(const CommRef& comm) { return comm->communicator->options().ranks; }
inline bool is_me(const CommRef& comm, int rank) {
  return comm.valid() && static_cast<int>(rank_of(comm)) == rank;
}

// What the arguments of a collective say.
session::Call call_of(collectives::Collective what, size_t count, hdtDataType_t type,
                      collectives::ReduceOp op, int root);

// Between hdtGroupStart and hdtGroupEnd of this thread.
bool in_group();
void group_start();
hdtResult_t group_end();

// Runs `post`, which posts operations, and waits for them, or files them with the group, or hands out a
// request.
hdtResult_t issue(const CommRef& comm, hdtRequest_t* request,
                  const std::function<Result<Posting>(Communicator&)>& post);

// Waits for all operations; the first failure is returned when none is pending any more.
Status wait_all(const hdtRequest& request, const Deadline& deadline);

}  // namespace hdt::client
