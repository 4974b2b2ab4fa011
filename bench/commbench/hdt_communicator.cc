// hdt_communicator.cc: makes calls of hdt.hpp out of calls of the benchmark. All calls are blocking ones.
#include "bench/commbench/hdt_communicator.h"

#include <optional>
#include <utility>

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {
namespace {

// The result of `body`. The values of Code are those of hdtResult_t.
template <typename Body>
Status status_of(const char* what, Body body) {
  try {
    body();
    return Status::ok();
  } catch (const Error& error) {
    return {static_cast<Code>(error.code()), std::string(what) + ": " + error.what()};
  }
}

}  // namespace

Result<std::unique_ptr<HdtCommunicator>> HdtCommunicator::join(int64_t timeout_s, bool hdt_memory) {
  // The deadline applies to joining and to all operations.
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.timeout_ms = timeout_s * 1000;
  std::optional<hdt::Communicator> comm;
  HDT_RETURN_IF_ERROR(status_of("joining the group", [&] { comm.emplace(&config); }));
  return std::unique_ptr<HdtCommunicator>(new HdtCommunicator(std::move(*comm), hdt_memory));
}

// -1 if the rank does not exist.
int HdtCommunicator::node_of(int rank) const {
  int node = -1;
  (void)status_of("node_of", [&] { node = comm_.node_of(rank); });
  return node;
}

Status HdtCommunicator::run(const Call& call) {
  return status_of(name_of(call.what), [&] { make_call(call); });
}

void HdtCommunicator::make_call(const Call& call) {
  // In collectives with a part for each rank, one buffer has as many parts.
  const size_t all = call.count * static_cast<size_t>(ranks());
  const auto send = [&](size_t count) { return SendBuffer{call.send, count, call.type}; };
  const auto recv = [&](size_t count) { return RecvBuffer{call.recv, count, call.type}; };
  switch (call.what) {
    case Collective::kAllReduce:
      return comm_.all_reduce(send(call.count), recv(call.count), call.op);
    case Collective::kReduceScatter:
      return comm_.reduce_scatter(send(all), recv(call.count), call.op);
    case Collective::kAllGather:
      return comm_.all_gather(send(call.count), recv(all));
    case Collective::kBroadcast:
      return comm_.broadcast(send(call.count), recv(call.count), call.root);
    case Collective::kReduce:
      return comm_.reduce(send(call.count), recv(call.count), call.root, call.op);
    case Collective::kAllToAll:
      return comm_.all_to_all(send(all), recv(all));
    case Collective::kGather:
      return comm_.gather(send(call.count), recv(all), call.root);
    case Collective::kScatter:
      return comm_.scatter(send(all), recv(call.count), call.root);
    case Collective::kSendRecv: {
      // Send and receive are grouped, so that neither waits for the other.
      CallGroup both;
      comm_.send(send(call.count), (rank() + 1) % ranks());
      comm_.recv(recv(call.count), (rank() + ranks() - 1) % ranks());
      return both.end();
    }
    case Collective::kBarrier:
      return comm_.barrier();
  }
  throw Error(HDT_ERR_INTERNAL, "a collective without a call");
}

Status HdtCommunicator::barrier() {
  return status_of("barrier", [&] { comm_.barrier(); });
}

// As 32-bit integers: an allgather does not look at their values.
Status HdtCommunicator::gather_all(const void* send, size_t bytes, void* recv) {
  const size_t count = bytes / sizeof(int32_t);
  return status_of("allgather", [&] {
    comm_.all_gather({send, count, HDT_INT32}, {recv, count * static_cast<size_t>(ranks()), HDT_INT32});
  });
}

Result<Memory> HdtCommunicator::allocate(size_t bytes) {
  if (!hdt_memory_) return allocate_host_memory(bytes);
  hdt::Memory<std::byte> made;
  HDT_RETURN_IF_ERROR(status_of("hdtMemAlloc", [&] { made = hdt::Memory<std::byte>(bytes); }));
  const auto owner = std::make_shared<hdt::Memory<std::byte>>(std::move(made));
  return Memory(owner, owner->data());
}

}  // namespace hdt::bench
