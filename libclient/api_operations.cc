// The C interface: collectives, point to point, requests.
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "hdt/hdt.h"
#include "libclient/handles.h"
#include "libclient/last_error.h"
#include "libclient/progress_thread.h"

using hdt::Code;
using hdt::Deadline;
using hdt::Result;
using hdt::Status;
using hdt::client::Communicator;
using hdt::client::Operation;
using hdt::client::ProgressThread;
using hdt::client::report;
using hdt::collectives::Collective;
using hdt::session::Call;

namespace {

// Calls between hdtGroupStart and hdtGroupEnd whose request was NULL.
thread_local int group_depth = 0;
thread_local std::vector<hdtRequest> group_requests;

using Posted = Result<std::shared_ptr<Operation>>;

// No exception crosses the C interface.
template <typename Body>
hdtResult_t guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return report(Status(Code::kSystem, "out of memory"));
  } catch (const std::exception& error) {
    return report(Status(Code::kInternal, error.what()));
  }
}

// Runs `post`, then waits, files the operation with the group, or hands out a request.
template <typename Post>
hdtResult_t issue(hdtComm_t comm, hdtRequest_t* request, Post post) {
  return guarded([&] {
    const std::shared_ptr<Communicator>& communicator = comm->communicator;
    Posted posted = post(*communicator);
    if (!posted.is_ok()) return report(posted.status());
    std::shared_ptr<Operation> operation = posted.take();
    if (request == nullptr && group_depth == 0)
      return report(communicator->wait(*operation, Deadline::never()));
    const bool done = operation->done();
    if (request == nullptr) {
      group_requests.push_back({communicator, std::move(operation)});
    } else {
      *request = new hdtRequest{communicator, std::move(operation)};
    }
    if (!done) ProgressThread::instance().wake(communicator);
    return HDT_SUCCESS;
  });
}

// A null buffer is fine where nothing is read or written.
Status check(hdtComm_t comm, const void* send, bool sends, const void* recv, bool receives, size_t count,
             hdtDataType_t type, int op) {
  if (comm == nullptr) return {Code::kInvalidArgument, "comm is null"};
  if (hdtTypeSize(type) == 0) return {Code::kInvalidArgument, "unknown type " + std::to_string(type)};
  if (op < HDT_SUM || op > HDT_AVG)
    return {Code::kInvalidArgument, "unknown reduction " + std::to_string(op)};
  if (count != 0 && sends && send == nullptr) return {Code::kInvalidArgument, "sendbuf is null"};
  if (count != 0 && receives && recv == nullptr) return {Code::kInvalidArgument, "recvbuf is null"};
  if (count > (uint64_t{1} << 56) / comm->communicator->options().ranks) {
    return {Code::kInvalidArgument, "count " + std::to_string(count) + " is too large"};
  }
  return Status::ok();
}

Status check_rank(hdtComm_t comm, int rank, const char* what) {
  if (rank >= 0 && static_cast<uint32_t>(rank) < comm->communicator->options().ranks) return Status::ok();
  return {Code::kInvalidArgument, std::string(what) + " " + std::to_string(rank) +
                                      " is not in the group of " +
                                      std::to_string(comm->communicator->options().ranks)};
}

hdtResult_t collective(Collective what, const void* send, void* recv, size_t count, hdtDataType_t type,
                       int op, int root, hdtComm_t comm, hdtRequest_t* request) {
  Call call;
  call.what = what;
  call.count = count;
  call.root = root;
  call.type = static_cast<hdt::collectives::DataType>(type);
  call.op = static_cast<hdt::collectives::ReduceOp>(op);
  if (request == nullptr && group_depth == 0) {
    return guarded([&] { return report(comm->communicator->run_collective(call, send, recv)); });
  }
  return issue(comm, request, [&](Communicator& c) { return c.collective(call, send, recv); });
}

bool is_me(hdtComm_t comm, int rank) {
  return comm != nullptr && comm->communicator->options().rank == static_cast<uint32_t>(rank);
}

}  // namespace

size_t hdtTypeSize(hdtDataType_t type) {
  if (type < HDT_INT32 || type > HDT_FLOAT64) return 0;
  return hdt::collectives::type_size(static_cast<hdt::collectives::DataType>(type));
}

hdtResult_t hdtAllReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, hdtRedOp_t op,
                         hdtComm_t comm, hdtRequest_t* request) {
  const Status status = check(comm, sendbuf, true, recvbuf, true, count, type, op);
  if (!status.is_ok()) return report(status);
  return collective(Collective::kAllReduce, sendbuf, recvbuf, count, type, op, 0, comm, request);
}

hdtResult_t hdtReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, hdtRedOp_t op,
                      int root, hdtComm_t comm, hdtRequest_t* request) {
  Status status = check(comm, sendbuf, true, recvbuf, is_me(comm, root), count, type, op);
  if (status.is_ok()) status = check_rank(comm, root, "root");
  if (!status.is_ok()) return report(status);
  return collective(Collective::kReduce, sendbuf, recvbuf, count, type, op, root, comm, request);
}

hdtResult_t hdtReduceScatter(const void* sendbuf, void* recvbuf, size_t recvcount, hdtDataType_t type,
                             hdtRedOp_t op, hdtComm_t comm, hdtRequest_t* request) {
  const Status status = check(comm, sendbuf, true, recvbuf, true, recvcount, type, op);
  if (!status.is_ok()) return report(status);
  return collective(Collective::kReduceScatter, sendbuf, recvbuf, recvcount, type, op, 0, comm, request);
}

hdtResult_t hdtAllGather(const void* sendbuf, void* recvbuf, size_t sendcount, hdtDataType_t type,
                         hdtComm_t comm, hdtRequest_t* request) {
  const Status status = check(comm, sendbuf, true, recvbuf, true, sendcount, type, HDT_SUM);
  if (!status.is_ok()) return report(status);
  return collective(Collective::kAllGather, sendbuf, recvbuf, sendcount, type, HDT_SUM, 0, comm, request);
}

hdtResult_t hdtBroadcast(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, int root,
                         hdtComm_t comm, hdtRequest_t* request) {
  Status status = check(comm, sendbuf, is_me(comm, root), recvbuf, true, count, type, HDT_SUM);
  if (status.is_ok()) status = check_rank(comm, root, "root");
  if (!status.is_ok()) return report(status);
  const void* source = is_me(comm, root) ? sendbuf : nullptr;
  return collective(Collective::kBroadcast, source, recvbuf, count, type, HDT_SUM, root, comm, request);
}

hdtResult_t hdtBarrier(hdtComm_t comm, hdtRequest_t* request) {
  const Status status = check(comm, nullptr, false, nullptr, false, 0, HDT_INT32, HDT_SUM);
  if (!status.is_ok()) return report(status);
  return collective(Collective::kBarrier, nullptr, nullptr, 0, HDT_INT32, HDT_SUM, 0, comm, request);
}

hdtResult_t hdtSend(const void* sendbuf, size_t count, hdtDataType_t type, int peer, hdtComm_t comm,
                    hdtRequest_t* request) {
  Status status = check(comm, sendbuf, true, nullptr, false, count, type, HDT_SUM);
  if (status.is_ok()) status = check_rank(comm, peer, "peer");
  if (!status.is_ok()) return report(status);
  return issue(comm, request, [&](Communicator& c) {
    return c.send(static_cast<uint32_t>(peer), sendbuf, count * hdtTypeSize(type));
  });
}

hdtResult_t hdtRecv(void* recvbuf, size_t count, hdtDataType_t type, int peer, hdtComm_t comm,
                    hdtRequest_t* request) {
  Status status = check(comm, nullptr, false, recvbuf, true, count, type, HDT_SUM);
  if (status.is_ok()) status = check_rank(comm, peer, "peer");
  if (!status.is_ok()) return report(status);
  return issue(comm, request, [&](Communicator& c) {
    return c.recv(static_cast<uint32_t>(peer), recvbuf, count * hdtTypeSize(type));
  });
}

hdtResult_t hdtGroupStart(void) {
  ++group_depth;
  return HDT_SUCCESS;
}

hdtResult_t hdtGroupEnd(void) {
  if (group_depth == 0) return report(Status(Code::kInvalidUsage, "hdtGroupEnd without hdtGroupStart"));
  if (--group_depth > 0) return HDT_SUCCESS;
  Status first;
  for (hdtRequest& request : std::exchange(group_requests, {})) {
    const Status status = request.communicator->wait(*request.operation, Deadline::never());
    if (first.is_ok()) first = status;
  }
  return report(first);
}

hdtResult_t hdtTest(hdtRequest_t* request) {
  if (request == nullptr || *request == nullptr) return HDT_SUCCESS;
  Operation& operation = *(*request)->operation;
  if (!operation.done()) (*request)->communicator->try_progress();
  if (!operation.done()) return HDT_IN_PROGRESS;
  const hdtResult_t result = report(operation.status());
  delete std::exchange(*request, nullptr);
  return result;
}

hdtResult_t hdtWait(hdtRequest_t* request, int64_t timeout_ms) {
  if (request == nullptr || *request == nullptr) return HDT_SUCCESS;
  const Deadline deadline = timeout_ms < 0 ? Deadline::never() : Deadline::after_ms(timeout_ms);
  const Status status = (*request)->communicator->wait(*(*request)->operation, deadline);
  const bool done = (*request)->operation->done();
  const hdtResult_t result = report(status);
  if (done) delete std::exchange(*request, nullptr);
  return result;
}
