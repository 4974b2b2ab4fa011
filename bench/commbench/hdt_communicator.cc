// hdt_communicator.cc: makes calls of hdt.h out of calls of the benchmark. All calls are blocking ones.
#include "bench/commbench/hdt_communicator.h"

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {
namespace {

// The values of Code are those of hdtResult_t.
Status check(hdtResult_t result, const char* what) {
  if (result == HDT_SUCCESS) return Status::ok();
  return {static_cast<Code>(result), std::string(what) + ": " + hdtGetLastError()};
}

}  // namespace

Result<std::unique_ptr<HdtCommunicator>> HdtCommunicator::join(int64_t timeout_s, bool hdt_memory) {
  // The deadline applies to joining and to all operations.
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.timeout_ms = timeout_s * 1000;
  hdtComm_t comm = nullptr;
  HDT_RETURN_IF_ERROR(check(hdtCommInit(&comm, &config), "joining the group"));
  int rank = 0;
  int ranks = 0;
  Status known = check(hdtCommUserRank(comm, &rank), "hdtCommUserRank");
  if (known.is_ok()) known = check(hdtCommCount(comm, &ranks), "hdtCommCount");
  if (!known.is_ok()) {
    hdtCommDestroy(comm);
    return known;
  }
  return std::unique_ptr<HdtCommunicator>(new HdtCommunicator(comm, rank, ranks, hdt_memory));
}

HdtCommunicator::~HdtCommunicator() { hdtCommDestroy(comm_); }

// -1 if the rank does not exist.
int HdtCommunicator::node_of(int rank) const {
  int node = -1;
  return hdtCommNodeOf(comm_, rank, &node) == HDT_SUCCESS ? node : -1;
}

Status HdtCommunicator::run(const Call& call) {
  switch (call.what) {
    case Collective::kAllReduce:
      return check(hdtAllReduce(call.send, call.recv, call.count, call.type, call.op, comm_, nullptr),
                   "hdtAllReduce");
    case Collective::kReduceScatter:
      return check(hdtReduceScatter(call.send, call.recv, call.count, call.type, call.op, comm_, nullptr),
                   "hdtReduceScatter");
    case Collective::kAllGather:
      return check(hdtAllGather(call.send, call.recv, call.count, call.type, comm_, nullptr), "hdtAllGather");
    case Collective::kBroadcast:
      return check(hdtBroadcast(call.send, call.recv, call.count, call.type, call.root, comm_, nullptr),
                   "hdtBroadcast");
    case Collective::kReduce:
      return check(hdtReduce(call.send, call.recv, call.count, call.type, call.op, call.root, comm_, nullptr),
                   "hdtReduce");
    case Collective::kAllToAll:
      return check(hdtAllToAll(call.send, call.recv, call.count, call.type, comm_, nullptr), "hdtAllToAll");
    case Collective::kGather:
      return check(hdtGather(call.send, call.recv, call.count, call.type, call.root, comm_, nullptr),
                   "hdtGather");
    case Collective::kScatter:
      return check(hdtScatter(call.send, call.recv, call.count, call.type, call.root, comm_, nullptr),
                   "hdtScatter");
    case Collective::kSendRecv: {
      // Send and receive are grouped, so that neither waits for the other. The group is ended even if
      // one of them has failed, or every later call would belong to it.
      HDT_RETURN_IF_ERROR(check(hdtGroupStart(), "hdtGroupStart"));
      const int next = (rank_ + 1) % ranks_;
      const int previous = (rank_ + ranks_ - 1) % ranks_;
      Status started = check(hdtSend(call.send, call.count, call.type, next, comm_, nullptr), "hdtSend");
      if (started.is_ok()) {
        started = check(hdtRecv(call.recv, call.count, call.type, previous, comm_, nullptr), "hdtRecv");
      }
      const Status ended = check(hdtGroupEnd(), "hdtGroupEnd");
      return started.is_ok() ? ended : started;
    }
    case Collective::kBarrier:
      return barrier();
  }
  return {Code::kInternal, "a collective without a call"};
}

Status HdtCommunicator::barrier() { return check(hdtBarrier(comm_, nullptr), "hdtBarrier"); }

// As 32-bit integers: an allgather does not look at their values.
Status HdtCommunicator::gather_all(const void* send, size_t bytes, void* recv) {
  return check(hdtAllGather(send, recv, bytes / sizeof(int32_t), HDT_INT32, comm_, nullptr), "hdtAllGather");
}

Result<Memory> HdtCommunicator::allocate(size_t bytes) {
  if (hdt_memory_) {
    void* pointer = nullptr;
    HDT_RETURN_IF_ERROR(check(hdtMemAlloc(&pointer, bytes), "hdtMemAlloc"));
    return Memory(static_cast<std::byte*>(pointer), [](std::byte* memory) { hdtMemFree(memory); });
  }
  return allocate_host_memory(bytes);
}

}  // namespace hdt::bench
