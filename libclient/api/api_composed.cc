// api_composed.cc: the C interface of operations that are made of others. Gather, scatter and the
// all-to-alls are sends and receives between pairs of ranks: in round i each rank sends to the rank i
// after it and receives from the rank i before it, so no two ranks begin with the same partner (pairwise
// exchange). Allgatherv is broadcasts by all ranks, and reduce-scatterv reductions to all ranks, cut so that
// those of all ranks are under way at once (common/counts.h).
//
// As such an operation is made of several, its request waits for several (Posting), and it holds as many
// places in the order of messages or calls on every rank.
#include <cstring>
#include <numeric>

#include "hdt/hdt.h"
#include "libclient/api/submit.h"
#include "libclient/common/counts.h"

using hdt::Code;
using hdt::Result;
using hdt::Status;
using hdt::client::call_of;
using hdt::client::check;
using hdt::client::check_rank;
using hdt::client::CommRef;
using hdt::client::Communicator;
using hdt::client::Contribution;
using hdt::client::CountPart;
using hdt::client::is_me;
using hdt::client::Posting;
using hdt::client::rank_of;
using hdt::client::ranks_of;
using hdt::client::report;
using hdt::client::submit;
using hdt::collectives::Collective;
using hdt::ipc::Call;

namespace {

// One rank's part of the exchange with another. Buffers are addresses in this process, sizes are bytes.
struct Part {
  const std::byte* send = nullptr;
  size_t send_bytes = 0;
  // False: there is nothing to send to that rank, not even a message of 0 bytes. `receives` likewise.
  bool sends = false;
  std::byte* recv = nullptr;
  size_t recv_bytes = 0;
  bool receives = false;
};

// Collects submitted operations. If one of them could not be submitted, take() returns the reason: a
// submission fails only when the group has failed or the communicator is being destroyed. The operations
// before it end then, too, and take() waits for that: their buffers are the caller's again.
class Collector {
 public:
  // `memory` is kept as long as the operations.
  explicit Collector(Communicator& communicator, std::shared_ptr<void> memory = nullptr)
      : communicator_(communicator) {
    posting_.memory = std::move(memory);
  }
  // Operations that nobody has taken: an exception ends the call. They end before the memory does.
  ~Collector() {
    if (!posting_.operations.empty()) (void)communicator_.abandon({Code::kSystem, "no memory"});
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Keeps the operation, or the first failure.
  void add(Result<std::shared_ptr<hdt::client::Operation>> posted) {
    if (posted.is_ok()) {
      posting_.operations.push_back(posted.take());
    } else if (status_.is_ok()) {
      status_ = posted.status();
    }
  }

  // To be called once.
  Result<Posting> take() {
    if (status_.is_ok()) return std::exchange(posting_, {});
    for (const auto& operation : posting_.operations) {
      (void)communicator_.wait(*operation, hdt::Deadline::never());
    }
    posting_ = {};
    return status_;
  }

 private:
  Communicator& communicator_;
  Posting posting_;
  Status status_;
};

// Submits this rank's parts with everyone; `part_of(peer)` returns the Part with that rank. The part
// with itself is copied at once, without a message. Buffers must stay valid until the operations are
// complete.
template <typename PartOf>
Result<Posting> exchange(Communicator& communicator, PartOf part_of) {
  const uint32_t ranks = communicator.options().ranks;
  const uint32_t me = communicator.options().rank;
  Collector collector(communicator);
  const Part own = part_of(me);
  // In place there is nothing to copy.
  if (own.sends && own.receives && own.recv_bytes != 0 && own.recv != own.send) {
    std::memmove(own.recv, own.send, own.recv_bytes);
  }
  for (uint32_t i = 1; i < ranks; ++i) {
    // The receive is submitted first, so that what the peer has sent already is taken at once.
    const uint32_t to = (me + i) % ranks, from = (me + ranks - i) % ranks;
    const Part out = part_of(to), in = part_of(from);
    if (in.receives) collector.add(communicator.recv(from, in.recv, in.recv_bytes));
    if (out.sends) collector.add(communicator.send(to, out.send, out.send_bytes));
  }
  return collector.take();
}

// `name` is that of the argument, for the message.
Status check_array(const void* array, const char* name) {
  if (array != nullptr) return Status::ok();
  return {Code::kInvalidArgument, std::string(name) + " is null"};
}

// Each count is checked by the largest one. `counts` has `ranks` entries, at least 1.
size_t largest(const size_t* counts, uint32_t ranks) { return *std::max_element(counts, counts + ranks); }

// The parts of a call by counts. On one node, and where reductions go from rank to rank, there is no chain.
std::vector<CountPart> parts_for(Communicator& communicator, const size_t* counts, size_t width,
                                 bool reduces) {
  const auto& options = communicator.options();
  const bool whole = communicator.access().one_node() || (reduces && options.deterministic);
  return hdt::client::parts_of({counts, options.ranks}, width, whole);
}

}  // namespace

hdtResult_t hdtGather(const void* sendbuf, void* recvbuf, size_t sendcount, hdtDataType_t type, int root,
                      hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, true, recvbuf, is_me(comm, root)}, sendcount, type);
  if (status.is_ok()) status = check_rank(comm, root, "root");
  if (!status.is_ok()) return report(status);
  // The size of one rank's block.
  const size_t bytes = sendcount * hdtTypeSize(type);
  const uint32_t me = rank_of(comm);
  const bool is_root = is_me(comm, root);
  return submit(comm, request, [&](Communicator& c) {
    // Each rank sends its block to the root; the root receives every rank's block at its place.
    return exchange(c, [&](uint32_t peer) {
      const bool sends = static_cast<int>(peer) == root;
      auto* place = is_root ? static_cast<std::byte*>(recvbuf) + peer * bytes : nullptr;
      // In place on the root: its own block is where it belongs.
      const bool own_in_place = peer == me && static_cast<const std::byte*>(sendbuf) == place;
      return Part{
          static_cast<const std::byte*>(sendbuf), bytes, sends && !own_in_place, place, bytes, is_root};
    });
  });
}

hdtResult_t hdtScatter(const void* sendbuf, void* recvbuf, size_t recvcount, hdtDataType_t type, int root,
                       hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, is_me(comm, root), recvbuf, true}, recvcount, type);
  if (status.is_ok()) status = check_rank(comm, root, "root");
  if (!status.is_ok()) return report(status);
  const size_t bytes = recvcount * hdtTypeSize(type);
  const bool is_root = is_me(comm, root);
  return submit(comm, request, [&](Communicator& c) {
    // The root sends each rank its block; the other ranks receive from the root only.
    return exchange(c, [&](uint32_t peer) {
      const auto* block = is_root ? static_cast<const std::byte*>(sendbuf) + peer * bytes : nullptr;
      return Part{
          block, bytes, is_root, static_cast<std::byte*>(recvbuf), bytes, static_cast<int>(peer) == root};
    });
  });
}

hdtResult_t hdtAllToAll(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type,
                        hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  const Status status = check(comm, {sendbuf, true, recvbuf, true}, count, type);
  if (!status.is_ok()) return report(status);
  const size_t bytes = count * hdtTypeSize(type);
  return submit(comm, request, [&](Communicator& c) -> Result<Posting> {
    const auto* from = static_cast<const std::byte*>(sendbuf);
    std::shared_ptr<std::vector<std::byte>> copy;
    // In place: what comes in would overwrite what is still to go out, so a copy is sent.
    if (sendbuf == recvbuf && bytes != 0) {
      copy = std::make_shared<std::vector<std::byte>>(from, from + bytes * ranks_of(comm));
      from = copy->data();
    }
    auto posting = exchange(c, [&](uint32_t peer) {
      return Part{
          from + peer * bytes, bytes, true, static_cast<std::byte*>(recvbuf) + peer * bytes, bytes, true};
    });
    if (posting.is_ok()) posting.value().memory = copy;
    return posting;
  });
}

hdtResult_t hdtAllToAllV(const void* sendbuf, const size_t sendcounts[], const size_t senddispls[],
                         void* recvbuf, const size_t recvcounts[], const size_t recvdispls[],
                         hdtDataType_t type, hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  // The handle first: the arrays have as many entries as the group has ranks.
  Status status = check(comm, {}, 0, type);
  for (const auto& [array, name] :
       {std::pair{sendcounts, "sendcounts"}, std::pair{senddispls, "senddispls"},
        std::pair{recvcounts, "recvcounts"}, std::pair{recvdispls, "recvdispls"}}) {
    if (status.is_ok()) status = check_array(array, name);
  }
  if (status.is_ok())
    status = check(comm, {sendbuf, true, nullptr, false}, largest(sendcounts, ranks_of(comm)), type);
  if (status.is_ok())
    status = check(comm, {nullptr, false, recvbuf, true}, largest(recvcounts, ranks_of(comm)), type);
  // A rank's part for itself is copied, not sent, so no receive would notice a difference.
  const uint32_t me = comm.valid() ? rank_of(comm) : 0;
  if (status.is_ok() && sendcounts[me] != recvcounts[me]) {
    status = {Code::kInvalidArgument, "rank " + std::to_string(me) + " sends itself " +
                                          std::to_string(sendcounts[me]) + " elements and expects " +
                                          std::to_string(recvcounts[me])};
  }
  if (!status.is_ok()) return report(status);
  const size_t width = hdtTypeSize(type);
  return submit(comm, request, [&](Communicator& c) {
    // A block for each rank, and a block from each rank.
    return exchange(c, [&](uint32_t peer) {
      return Part{
          static_cast<const std::byte*>(sendbuf) + senddispls[peer] * width, sendcounts[peer] * width, true,
          static_cast<std::byte*>(recvbuf) + recvdispls[peer] * width,       recvcounts[peer] * width, true};
    });
  });
}

hdtResult_t hdtAllGatherV(const void* sendbuf, void* recvbuf, const size_t recvcounts[],
                          const size_t recvdispls[], hdtDataType_t type, hdtComm_t handle,
                          hdtRequest_t* request) {
  const CommRef comm(handle);
  // The checks go from the handle to the arrays, and from these to the buffers, since each step needs
  // the one before: a buffer may be null only if the counts say that nothing is in it.
  Status status = check(comm, {}, 0, type);
  if (status.is_ok()) status = check_array(recvcounts, "recvcounts");
  if (status.is_ok()) status = check_array(recvdispls, "recvdispls");
  if (status.is_ok()) status = check(comm, {sendbuf, true, nullptr, false}, recvcounts[rank_of(comm)], type);
  if (status.is_ok())
    status = check(comm, {nullptr, false, recvbuf, true}, largest(recvcounts, ranks_of(comm)), type);
  if (!status.is_ok()) return report(status);
  const size_t width = hdtTypeSize(type);
  // Broadcasts with each rank as root. All ranks make the same ones in the same order, unless they have
  // different recvcounts: then some of these calls differ, and are found as mismatches.
  return submit(comm, request, [&](Communicator& c) -> Result<Posting> {
    Collector collector(c);
    for (const CountPart& part : parts_for(c, recvcounts, width, false)) {
      Call call = call_of(Collective::kBroadcast, part.count, type, hdt::collectives::ReduceOp::kSum,
                          static_cast<int>(part.root));
      call.part = part.part;
      const auto* mine = static_cast<const std::byte*>(sendbuf) + part.first * width;
      collector.add(
          c.collective(call, part.root == rank_of(comm) ? mine : nullptr,
                       static_cast<std::byte*>(recvbuf) + (recvdispls[part.root] + part.first) * width));
    }
    return collector.take();
  });
}

hdtResult_t hdtReduceScatterV(const void* sendbuf, void* recvbuf, const size_t recvcounts[],
                              hdtDataType_t type, hdtRedOp_t op, hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {}, 0, type);
  if (status.is_ok()) status = check_array(recvcounts, "recvcounts");
  if (status.is_ok())
    status = check(comm, {sendbuf, true, nullptr, false}, largest(recvcounts, ranks_of(comm)), type);
  if (status.is_ok()) status = check(comm, {nullptr, false, recvbuf, true}, recvcounts[rank_of(comm)], type);
  if (!status.is_ok()) return report(status);
  const size_t width = hdtTypeSize(type);
  return submit(comm, request, [&](Communicator& c) -> Result<Posting> {
    // The contribution is multiplied as a whole, where the reduction demands it, and once for all
    // reductions.
    const size_t elements = std::accumulate(recvcounts, recvcounts + ranks_of(comm), size_t{0});
    Result<Contribution> contribution = comm->reductions.contribute(op, type, sendbuf, elements, nullptr);
    if (!contribution.is_ok()) return contribution.status();
    Collector collector(c, contribution.value().memory);
    std::vector<size_t> blocks(ranks_of(comm));  // where each begins in the contribution
    std::exclusive_scan(recvcounts, recvcounts + blocks.size(), blocks.begin(), size_t{0});
    for (const CountPart& part : parts_for(c, recvcounts, width, true)) {
      Call call = call_of(Collective::kReduce, part.count, type, contribution.value().op,
                          static_cast<int>(part.root));
      call.part = part.part;
      // Only the root of a reduction has a recvbuf.
      auto* mine = static_cast<std::byte*>(recvbuf) + part.first * width;
      collector.add(c.collective(
          call,
          static_cast<const std::byte*>(contribution.value().send) + (blocks[part.root] + part.first) * width,
          part.root == rank_of(comm) ? mine : nullptr));
    }
    return collector.take();
  });
}

hdtResult_t hdtSendRecv(const void* sendbuf, size_t sendcount, int dest, void* recvbuf, size_t recvcount,
                        int source, hdtDataType_t type, hdtComm_t handle, hdtRequest_t* request) {
  const CommRef comm(handle);
  Status status = check(comm, {sendbuf, true, nullptr, false}, sendcount, type);
  if (status.is_ok()) status = check(comm, {nullptr, false, recvbuf, true}, recvcount, type);
  if (status.is_ok()) status = check_rank(comm, dest, "dest");
  if (status.is_ok()) status = check_rank(comm, source, "source");
  if (!status.is_ok()) return report(status);
  const size_t width = hdtTypeSize(type);
  // Both are submitted before either is waited for, so neither waits for the other.
  return submit(comm, request, [&](Communicator& c) -> Result<Posting> {
    Collector collector(c);
    collector.add(c.send(static_cast<uint32_t>(dest), sendbuf, sendcount * width));
    collector.add(c.recv(static_cast<uint32_t>(source), recvbuf, recvcount * width));
    return collector.take();
  });
}
