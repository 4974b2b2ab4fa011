#include "libclient/api/issue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/limits.h"
#include "libclient/api/thread_value.h"
#include "libclient/group/progress_thread.h"

namespace hdt::client {

namespace {

// Calls between hdtGroupStart and hdtGroupEnd whose request was NULL.
thread_local int group_depth = 0;
struct GroupRequests;
std::vector<hdtRequest>& group_requests() { return thread_value<std::vector<hdtRequest>, GroupRequests>(); }

}  // namespace

Status out_of_memory() {
  const std::string limit = limit_behind(ENOMEM);
  return {Code::kSystem,
          "process " + own_process() + " is out of memory" + (limit.empty() ? "" : ": " + limit)};
}

Status check(const CommRef& comm, const Buffers& buffers, size_t count, hdtDataType_t type) {
  if (forked()) return copy_refused();
  if (!comm.valid()) return comm.status();
  if (hdtTypeSize(type) == 0) return {Code::kInvalidArgument, "unknown type " + std::to_string(type)};
  if (count != 0 && buffers.sends && buffers.send == nullptr)
    return {Code::kInvalidArgument, "sendbuf is null"};
  if (count != 0 && buffers.receives && buffers.recv == nullptr)
    return {Code::kInvalidArgument, "recvbuf is null"};
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

session::Call call_of(collectives::Collective what, size_t count, hdtDataType_t type,
                      collectives::ReduceOp op, int root) {
  session::Call call;
  call.what = what;
  call.count = count;
  call.root = root;
  call.type = static_cast<collectives::DataType>(type);
  call.op = op;
  return call;
}

bool in_group() { return group_depth > 0; }

void group_start() { ++group_depth; }

hdtResult_t group_end() {
  if (forked()) return refuse_copy();
  if (group_depth == 0) return report(Status(Code::kInvalidUsage, "hdtGroupEnd without hdtGroupStart"));
  if (--group_depth > 0) return HDT_SUCCESS;
  Status first;
  for (const hdtRequest& request : std::exchange(group_requests(), {})) {
    const Status status = wait_all(request, Deadline::never());
    if (first.is_ok()) first = status;
  }
  return report(first);
}

namespace {

// An operation that nobody waits for needs what is taken here: refused before anything is posted, it would be
// an operation that this rank has not begun and all others wait for. So that fails the group.
Status prepare(Communicator& communicator, hdtRequest_t* request) {
  const Status started = ProgressThread::instance().start();
  if (!started.is_ok()) return communicator.give_up(started);
  if (request == nullptr && group_requests().size() == group_requests().capacity()) {
    group_requests().reserve(2 * group_requests().size() + 8);
  }
  return Status::ok();
}

}  // namespace

hdtResult_t issue(const CommRef& comm, hdtRequest_t* request,
                  const std::function<Result<Posting>(Communicator&)>& post) {
  return guarded([&] {
    Communicator& communicator = *comm->communicator;
    if (request == nullptr && !in_group()) {
      Result<Posting> posted = post(communicator);
      if (!posted.is_ok()) return report(posted.status());
      return report(wait_all({comm->communicator, posted.take()}, Deadline::never()));
    }
    const Status prepared = prepare(communicator, request);
    if (!prepared.is_ok()) return report(prepared);
    const uintptr_t handle = request == nullptr ? 0 : requests.make({comm->communicator, {}});
    const auto made = requests.find(handle);
    Result<Posting> posted = post(communicator);
    if (!posted.is_ok()) {
      if (made) made.end();
      return report(posted.status());
    }
    hdtRequest filed{comm->communicator, posted.take()};
    const bool done = filed.done();
    if (request == nullptr) {
      group_requests().push_back(std::move(filed));
    } else {
      *made = std::move(filed);
      *request = reinterpret_cast<hdtRequest_t>(handle);
    }
    if (!done) ProgressThread::instance().wake(comm->communicator);
    return HDT_SUCCESS;
  });
}

Status wait_all(const hdtRequest& request, const Deadline& deadline) {
  Status first;
  for (const auto& operation : request.posting.operations) {
    const Status status = request.communicator->wait(*operation, deadline);
    if (first.is_ok()) first = status;
  }
  return first;
}

}  // namespace hdt::client
