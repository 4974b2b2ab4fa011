// submit.cc: see submit.h. The state of hdtGroupStart groups is per thread, so nothing here is shared
// between threads except the table of requests and the progress thread.
#include "libclient/api/submit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "libclient/api/thread_value.h"
#include "libclient/group/progress_thread.h"

namespace hdt::client {

namespace {

// The depth of nested groups of this thread, and the calls in them whose request was NULL. An int has no
// destructor, so it can be used until the thread is gone; the list needs thread_value() for that.
thread_local int group_depth = 0;
struct GroupRequests;
std::vector<hdtRequest>& group_requests() { return thread_value<std::vector<hdtRequest>, GroupRequests>(); }

}  // namespace

// The order matters: the handle is looked at before anything that needs the communicator, and a copy of
// the process is refused before the handle, which it has inherited.
Status check(const CommRef& comm, const Buffers& buffers, size_t count, hdtDataType_t type) {
  if (forked()) return copy_refused();
  if (!comm.valid()) return comm.status();
  if (hdtTypeSize(type) == 0) return {Code::kInvalidArgument, "unknown type " + std::to_string(type)};
  if (count != 0 && buffers.sends && buffers.send == nullptr)
    return {Code::kInvalidArgument, "sendbuf is null"};
  if (count != 0 && buffers.receives && buffers.recv == nullptr)
    return {Code::kInvalidArgument, "recvbuf is null"};
  // The same bound as in ipc/partition.cc. With it no product of count, ranks and element size overflows.
  if (count > (uint64_t{1} << 56) / ranks_of(comm)) {
    return {Code::kInvalidArgument, "count " + std::to_string(count) + " is too large"};
  }
  return Status::ok();
}

Status check_rank(const CommRef& comm, int rank, const char* what) {
  if (rank >= 0 && static_cast<uint32_t>(rank) < ranks_of(comm)) return Status::ok();
  return {Code::kInvalidArgument, std::string(what) + " " + std::to_string(rank) +
                                      " is not in the group of " + std::to_string(ranks_of(comm))};
}

ipc::Call call_of(collectives::Collective what, size_t count, hdtDataType_t type, collectives::ReduceOp op,
                  int root) {
  ipc::Call call;
  call.what = what;
  call.count = count;
  call.root = root;
  call.type = static_cast<collectives::DataType>(type);
  call.op = op;
  return call;
}

bool in_group() { return group_depth > 0; }

void group_start() { ++group_depth; }

// The list is taken out before the waiting, so the thread begins its next group with an empty one.
hdtResult_t group_end() {
  if (forked()) return refuse_copy();
  if (group_depth == 0) return report(Status(Code::kInvalidUsage, "hdtGroupEnd without hdtGroupStart"));
  if (--group_depth > 0) return HDT_SUCCESS;
  Status first;
  hdtResult_t failed = HDT_SUCCESS;  // by an exception, which has been reported
  for (const hdtRequest& request : std::exchange(group_requests(), {})) {
    const hdtResult_t ended = guarded_for(*request.communicator, [&] {
      const Status status = wait_all(request, Deadline::never());
      if (first.is_ok()) first = status;
      return HDT_SUCCESS;
    });
    if (ended != HDT_SUCCESS) failed = ended;
  }
  return first.is_ok() && failed != HDT_SUCCESS ? failed : report(first);
}

namespace {

// Reserves what an operation needs that nobody waits for: the progress thread, and a place in the list.
// The system can refuse either, so they are taken before anything is submitted: otherwise the operation
// would run without anybody to complete it. If the thread is refused, the group fails, since this rank
// has not begun an operation for which all others wait.
Status prepare(Communicator& communicator, hdtRequest_t* request) {
  const Status started = ProgressThread::instance().start();
  if (!started.is_ok()) return communicator.give_up(started);
  // reserve() makes the push_back() after the submission free of exceptions.
  if (request == nullptr && group_requests().size() == group_requests().capacity()) {
    group_requests().reserve(2 * group_requests().size() + 8);
  }
  return Status::ok();
}

// A request's handle, which ends with this object unless it is kept.
class NewHandle {
 public:
  explicit NewHandle(std::shared_ptr<Communicator> communicator)
      : value_(requests.make({std::move(communicator), {}})), made_(requests.find(value_)) {}
  ~NewHandle() {
    if (!kept_) made_.end();
  }
  NewHandle(const NewHandle&) = delete;
  NewHandle& operator=(const NewHandle&) = delete;
  // Nobody else knows the handle yet, so its body may be written without a lock.
  hdtRequest_t keep(hdtRequest body) {
    *made_ = std::move(body);
    kept_ = true;
    return reinterpret_cast<hdtRequest_t>(value_);
  }

 private:
  uintptr_t value_;
  decltype(requests.find(0)) made_;
  bool kept_ = false;
};

}  // namespace

hdtResult_t submit_by(const CommRef& comm, hdtRequest_t* request, const void* post,
                      Result<Posting> (*call)(const void* post, Communicator& communicator)) {
  // Outside of what may throw: the operations' memory is to be there until they have ended.
  hdtRequest filed{comm->communicator, {}};
  return guarded_for(*comm->communicator, [&] {
    Communicator& communicator = *comm->communicator;
    // 1. A blocking call outside of a group. The caller's thread does the work in wait_all().
    if (request == nullptr && !in_group()) {
      Result<Posting> posted = call(post, communicator);
      if (!posted.is_ok()) return report(posted.status());
      filed.posting = posted.take();
      return report(wait_all(filed, Deadline::never()));
    }
    // 2. Otherwise everything that can fail comes before the submission: the thread, the list, the
    //    handle.
    const Status prepared = prepare(communicator, request);
    if (!prepared.is_ok()) return report(prepared);
    std::optional<NewHandle> handle;
    if (request != nullptr) handle.emplace(comm->communicator);
    // 3. Submit. If that fails, the handle ends unused.
    Result<Posting> posted = call(post, communicator);
    if (!posted.is_ok()) return report(posted.status());
    // 4. Keep the operations, whatever happens.
    filed.posting = posted.take();
    // 5. The progress thread moves what could not be completed at once. Waking it costs more than some looks,
    //    in which the other ranks of the node come, if they are about to. Calls of a group may need one
    //    another, so they do not look.
    if (!in_group()) communicator.look_briefly([&] { return filed.done(); });
    if (!filed.done()) ProgressThread::instance().wake(comm->communicator);
    // 6. Hand them out. Nothing fails from here on.
    if (request == nullptr) {
      group_requests().push_back(std::move(filed));
    } else {
      *request = handle->keep(std::move(filed));
    }
    return HDT_SUCCESS;
  });
}

// After the deadline each further wait returns at once, with kTimeout if its operation is pending.
Status wait_all(const hdtRequest& request, const Deadline& deadline) {
  Status first;
  for (const auto& operation : request.posting.operations) {
    const Status status = request.communicator->wait(*operation, deadline);
    if (first.is_ok()) first = status;
  }
  return first;
}

}  // namespace hdt::client
