#include "libclient/issue.h"

#include <algorithm>
#include <utility>

#include "libclient/progress_thread.h"

namespace hdt::client {

namespace {

// Calls between hdtGroupStart and hdtGroupEnd whose request was NULL.
thread_local int group_depth = 0;
thread_local KeptInCopies<std::vector<hdtRequest>> group_requests;

}  // namespace

Status check(hdtComm_t comm, const Buffers& buffers, size_t count, hdtDataType_t type) {
  if (forked()) return copy_refused();
  if (comm == nullptr) return {Code::kInvalidArgument, "comm is null"};
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

Status check_rank(hdtComm_t comm, int rank, const char* what) {
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
  for (const hdtRequest& request : std::exchange(*group_requests, {})) {
    const Status status = wait_all(request, Deadline::never());
    if (first.is_ok()) first = status;
  }
  return report(first);
}

hdtResult_t issue(hdtComm_t comm, hdtRequest_t* request,
                  const std::function<Result<Posting>(Communicator&)>& post) {
  return guarded([&] {
    Result<Posting> posted = post(*comm->communicator);
    if (!posted.is_ok()) return report(posted.status());
    hdtRequest made{comm->communicator, posted.take()};
    if (request == nullptr && !in_group()) return report(wait_all(made, Deadline::never()));
    const bool done = made.done();
    if (request == nullptr) {
      (*group_requests).push_back(std::move(made));
    } else {
      *request = new hdtRequest(std::move(made));
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
