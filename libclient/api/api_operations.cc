// api_operations.cc: the C interface of collectives, point to point and requests. Each function checks
// its arguments, builds a ipc::Call, and hands it to submit() (submit.h). Errors before the submission
// concern this rank alone and leave the communicator as it was; what fails afterwards fails the group on
// all ranks.
#include <memory>
#include <utility>
#include <vector>

#include "hdt/hdt.h"
#include "libclient/api/submit.h"

using hdt::Code;
using hdt::Deadline;
using hdt::Result;
using hdt::Status;
using hdt::client::call_of;
using hdt::client::can_reduce;
using hdt::client::check;
using hdt::client::check_rank;
using hdt::client::CommRef;
using hdt::client::Communicator;
using hdt::client::Contribution;
using hdt::client::guarded;
using hdt::client::guarded_for;
using hdt::client::is_built_in;
using hdt::client::is_me;
using hdt::client::Notice;
using hdt::client::Operation;
using hdt::client::Posting;
using hdt::client::ranks_of;
using hdt::client::report;
using hdt::client::requests;
using hdt::client::submit;
using hdt::collectives::Collective;
using hdt::ipc::Call;

namespace {

// One operation as a Posting, with the memory that must live as long.
Result<Posting> posting(Result<std::shared_ptr<Operation>> posted, std::shared_ptr<void> memory = nullptr) {
  if (!posted.is_ok()) return posted.status();
  return Posting{{posted.take()}, std::move(memory)};
}

// Submits a collective. A blocking call outside of hdtGroupStart takes run_collective() instead of
// submit(): there a small call on one node needs no Operation, no request and no std::function.
// `contribution.memory` lives until the call returns, or as long as the request.
hdtResult_t collective(Collective what, const Contribution& contribution, void* recv, size_t count,
                       hdtDataType_t type, int root, const CommRef& comm, hdtRequest_t* request) {
  const Call call = call_of(what, count, type, contribution.op, root);
  if (request == nullptr && !hdt::client::in_group()) {
    return guarded_for(*comm->communicator, [&] {
      return report(comm->communicator->run_collective(call, contribution.send, recv));
    });
  }
  return submit(comm, request, [&](Communicator& c) {
    return posting(c.collective(call, contribution.send, recv), contribution.memory);
  });
}

// The contribution to collectives that combine nothing.
Contribution of_bytes(const void* send) { return {hdt::collectives::ReduceOp::kSum, send, nullptr}; }

// Submits a reducing collective of `count` elements with any reduction. `sendcount` elements of sendbuf
// are multiplied into `scratch` if the reduction demands it; null: into memory of their own. A scratch
// may be given only where the whole result is written to it afterwards.
hdtResult_t reducing(Collective what, const void* sendbuf, size_t sendcount, void* scratch, void* recvbuf,
                     size_t count, hdtDataType_t type, hdtRedOp_t op, int root, const CommRef& comm,
                     hdtRequest_t* request) {
  if (is_built_in(op) && can_reduce(type, op)) {
    const Contribution own{static_cast<hdt::collectives::ReduceOp>(op), sendbuf, nullptr};
    return collective(what, own, recvbuf, count, type, root, comm, request);
  }
  return guarded_for(*comm->communicator, [&] {
    Result<Contribution> contribution = comm->reductions.contribute(op, type, sendbuf, sendcount, scratch);
    if (!contribution.is_ok()) return report(contribution.status());
    return collective(what, contribution.take(), recvbuf, count, type, root, comm, request);
  });
}

}  // namespace

// The comparison with HDT_INT32 is for values below 0, which a C program may pass.
size_t hdtTypeSize(hdtDataType_t type) {
  if (type < HDT_INT32 || type >= hdt::collectives::kDataTypeCount) return 0;
  return hdt::collectives::type_size(static_cast<hdt::collectives::DataType>(type));
}

hdtResult_t hdtAllReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, hdtRedOp_t op,
                         hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, true, recvbuf, true}, count, type);
  if (!status.is_ok()) return report(status);
  // The recvbuf serves as scratch: the multiplied contribution is then used in place.
  return reducing(Collective::kAllReduce, sendbuf, count, recvbuf, recvbuf, count, type, op, 0, comm,
                  request);
}

// The scalar is copied here, so later changes of it have no effect.
hdtResult_t hdtRedOpCreatePreMulSum(hdtRedOp_t* op, const void* scalar, hdtDataType_t type,
                                    hdtComm_t handle) {
  const CommRef comm(handle);
  if (op == nullptr || scalar == nullptr) {
    return report(Status(Code::kInvalidArgument, op == nullptr ? "op is null" : "scalar is null"));
  }
  const Status status = check(comm, {}, 0, type);
  if (!status.is_ok()) return report(status);
  return guarded([&] {
    *op = comm->reductions.add(scalar, type);
    return HDT_SUCCESS;
  });
}

hdtResult_t hdtRedOpDestroy(hdtRedOp_t op, hdtComm_t handle) {
  const CommRef comm(handle);
  // No type belongs to this call; any known one passes the check.
  const Status status = check(comm, {}, 0, HDT_INT32);
  return report(status.is_ok() ? comm->reductions.remove(op) : status);
}

hdtResult_t hdtReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, hdtRedOp_t op,
                      int root, hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  // is_me() copes with an ended handle, which check() then refuses. The recvbuf matters on the root
  // only, and cannot serve as scratch, since other ranks may pass null.
  Status status = check(comm, {sendbuf, true, recvbuf, is_me(comm, root)}, count, type);
  if (status.is_ok()) status = check_rank(comm, root, "root");
  if (!status.is_ok()) return report(status);
  return reducing(Collective::kReduce, sendbuf, count, nullptr, recvbuf, count, type, op, root, comm,
                  request);
}

hdtResult_t hdtReduceScatter(const void* sendbuf, void* recvbuf, size_t recvcount, hdtDataType_t type,
                             hdtRedOp_t op, hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, true, recvbuf, true}, recvcount, type);
  if (!status.is_ok()) return report(status);
  // The contribution has a block for each rank, which the recvbuf cannot hold: so there is no scratch.
  return reducing(Collective::kReduceScatter, sendbuf, recvcount * ranks_of(comm), nullptr, recvbuf,
                  recvcount, type, op, 0, comm, request);
}

hdtResult_t hdtAllGather(const void* sendbuf, void* recvbuf, size_t sendcount, hdtDataType_t type,
                         hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  const Status status = check(comm, {sendbuf, true, recvbuf, true}, sendcount, type);
  if (!status.is_ok()) return report(status);
  return collective(Collective::kAllGather, of_bytes(sendbuf), recvbuf, sendcount, type, 0, comm, request);
}

hdtResult_t hdtBroadcast(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, int root,
                         hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, is_me(comm, root), recvbuf, true}, count, type);
  if (status.is_ok()) status = check_rank(comm, root, "root");
  if (!status.is_ok()) return report(status);
  // Other ranks' sendbufs are not read, whatever they are.
  const void* source = is_me(comm, root) ? sendbuf : nullptr;
  return collective(Collective::kBroadcast, of_bytes(source), recvbuf, count, type, root, comm, request);
}

// A barrier is a collective without elements: it is complete when every rank has made the call.
hdtResult_t hdtBarrier(hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  const Status status = check(comm, {}, 0, HDT_INT32);
  if (!status.is_ok()) return report(status);
  return collective(Collective::kBarrier, {}, nullptr, 0, HDT_INT32, 0, comm, request);
}

hdtResult_t hdtSend(const void* sendbuf, size_t count, hdtDataType_t type, int peer, hdtComm_t handle,
                    hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, true, nullptr, false}, count, type);
  if (status.is_ok()) status = check_rank(comm, peer, "peer");
  if (!status.is_ok()) return report(status);
  // Sizes go by bytes from here on: the two ends of a message need not use the same type.
  return submit(comm, request, [&](Communicator& c) {
    return posting(c.send(static_cast<uint32_t>(peer), sendbuf, count * hdtTypeSize(type)));
  });
}

hdtResult_t hdtRecv(void* recvbuf, size_t count, hdtDataType_t type, int peer, hdtComm_t handle,
                    hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {nullptr, false, recvbuf, true}, count, type);
  if (status.is_ok()) status = check_rank(comm, peer, "peer");
  if (!status.is_ok()) return report(status);
  return submit(comm, request, [&](Communicator& c) {
    return posting(c.recv(static_cast<uint32_t>(peer), recvbuf, count * hdtTypeSize(type)));
  });
}

hdtResult_t hdtRecvAny(void* recvbuf, size_t count, hdtDataType_t type, int* source, hdtComm_t handle,
                       hdtRequest_t* request) {
  const CommRef comm(handle);
  const Status status = check(comm, {nullptr, false, recvbuf, true}, count, type);
  if (!status.is_ok()) return report(status);
  return submit(comm, request, [&](Communicator& c) {
    return posting(c.recv_any(recvbuf, count * hdtTypeSize(type), source));
  });
}

// The state of groups is the thread's own, so nothing can fail here but a call in a forked copy.
hdtResult_t hdtGroupStart(void) {
  if (hdt::forked()) return hdt::client::refuse_copy();
  hdt::client::group_start();
  return HDT_SUCCESS;
}

hdtResult_t hdtGroupEnd(void) { return hdt::client::group_end(); }

namespace {

// A copy of a request that another copy has completed can be told from one that is under way, as handles
// are never used again.
Status ended_request() {
  return {Code::kInvalidArgument,
          "the request is not under way: hdtWait or hdtTest has completed it, or it was never made"};
}

}  // namespace

// One attempt to make progress, unless another thread is at it; never sleeps. A request that is done
// goes through wait_all(), which does not wait then, for its result.
hdtResult_t hdtTest(hdtRequest_t* request) {
  if (request == nullptr || *request == nullptr) return HDT_SUCCESS;
  if (hdt::forked()) return hdt::client::refuse_copy();
  const auto found = requests.find(reinterpret_cast<uintptr_t>(*request));
  if (!found) return report(ended_request());
  return guarded_for(*found->communicator, [&] {
    if (!found->done()) found->communicator->try_progress();
    if (!found->done()) return HDT_IN_PROGRESS;
    const hdtResult_t result = report(hdt::client::wait_all(*found, Deadline::never()));
    found.end();
    *request = nullptr;
    return result;
  });
}

// The caller's thread does the work (Communicator::wait()); the progress thread leaves the communicator
// alone meanwhile. `done` and not the code decides whether the request ends: HDT_ERR_TIMEOUT is also the
// code of a group that failed at its own deadline, and then the request is complete.
hdtResult_t hdtWait(hdtRequest_t* request, int64_t timeout_ms) {
  if (request == nullptr || *request == nullptr) return HDT_SUCCESS;
  if (hdt::forked()) return hdt::client::refuse_copy();
  const auto found = requests.find(reinterpret_cast<uintptr_t>(*request));
  if (!found) return report(ended_request());
  return guarded_for(*found->communicator, [&] {
    const Deadline deadline = timeout_ms < 0 ? Deadline::never() : Deadline::after_ms(timeout_ms);
    const Status status = hdt::client::wait_all(*found, deadline);
    const bool done = found->done();
    const hdtResult_t result = report(status);
    if (done) {
      found.end();
      *request = nullptr;
    }
    return result;
  });
}

// The notices are made first, as nothing may fail once the first of them is given. A count of one is this
// call's own: the caller's function is not called before every operation has its notice.
hdtResult_t hdtWhenDone(hdtRequest_t request, void (*call)(void*), void* argument) {
  if (call == nullptr) return report(Status(Code::kInvalidArgument, "call is null"));
  if (hdt::forked()) return hdt::client::refuse_copy();
  if (request == nullptr) {
    call(argument);
    return HDT_SUCCESS;
  }
  const auto found = requests.find(reinterpret_cast<uintptr_t>(request));
  if (!found) return report(ended_request());
  return guarded([&] {
    const auto& operations = found->posting.operations;
    const auto left = std::make_shared<std::atomic<size_t>>(operations.size() + 1);
    std::vector<std::unique_ptr<Notice>> notices;
    for (size_t i = 0; i < operations.size(); ++i) {
      notices.push_back(std::make_unique<Notice>(Notice{call, argument, left}));
    }
    for (size_t i = 0; i < operations.size(); ++i) operations[i]->when_done(std::move(notices[i]));
    if (left->fetch_sub(1, std::memory_order_acq_rel) == 1) call(argument);
    return HDT_SUCCESS;
  });
}
