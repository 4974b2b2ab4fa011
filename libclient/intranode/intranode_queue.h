// intranode_queue.h: the intra-node queue: collectives of a group of one node. No daemon takes part. Ranks
// publish their calls in descriptors (ipc/call_descriptor.h) and reach each other's buffers. From the
// descriptors of a call all ranks derive the same one of three protocols:
//   eager    all contributions are in the descriptors or their payloads: every rank computes its own result;
//            one meeting
//   direct   every rank reaches every rank's buffers, mapped (memory of hdtMemAlloc) or through the kernel
//            (any other memory, where it is permitted and measured to be faster): every rank does its share
//            in place; two meetings, no copy
//   staged   the rest: chunk by chunk through the node's slots
//
// A call goes through these stages, each for one call after the other, so calls overlap only by their
// posting:
// 1. Posted: this rank has written its descriptor (post_calls()).
// 2. Compared: all ranks have posted the same call (all_posted()).
// 3. Worked: this rank has done its share (work()).
// 4. Finished: this rank has its result, and in a direct call everyone has done their share (finish()).
//
// It is not thread-safe: the communicator's lock is held.
#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "libclient/common/call_queue.h"
#include "libclient/daemon_client/allocations.h"
#include "libclient/intranode/local_mover.h"
#include "libclient/intranode/peer_memory.h"
#include "libclient/intranode/protocol_tuner.h"
#include "libclient/intranode/reach.h"
#include "libclient/intranode/staged_call.h"

namespace hdt::client {

// Owned by the Communicator of a group of one node.
class IntranodeQueue : public CallQueue {
 public:
  // How the queue exposes this process's memory and reaches that of others. Both may ask the daemon.
  struct Memory {
    // Where a buffer of this process is in memory that it shares; memory 0: in none.
    std::function<Result<Allocations::Place>(const void*, size_t)> locate;
    PeerMemory::Open open;
  };
  // `access` must outlive the queue. Offers this process's proof to the others (reach.h).
  IntranodeQueue(const NodeAccess& access, Memory memory);

  void push(const ipc::Call& call, const void* send, void* recv,
            std::shared_ptr<Operation> operation) override;
  bool progress() override;
  bool empty() const override { return calls_.empty(); }
  const Operation* oldest() const override {
    return calls_.empty() ? nullptr : calls_.front().operation.get();
  }
  uint64_t oldest_sequence() const override { return calls_.front().sequence; }
  const ipc::Call& oldest_call() const override { return calls_.front().call; }
  void fail_all(const Status& status) override;

  // The express protocol of a small blocking call when nothing else is under protocol: no allocation, no
  // queue. False: the call does not qualify, and nothing was done. True: it was posted, and must be finished
  // with express_done() or adopt(). Peers are not rung for the posting; the caller does that, off the
  // critical path (Communicator::run_express()).
  bool express(const ipc::Call& call, const void* send, void* recv);
  // The result of one look at the call that express() has posted.
  enum class Express : uint8_t { kWaiting, kDone, kNeedsQueue };
  // kWaiting: not all ranks have posted it. kDone: it is complete. kNeedsQueue: it is not eager and must
  // be adopted. The arguments are those of express().
  Express express_done(const ipc::Call& call, const void* send, void* recv);
  // Makes the posted call one of the queue, because it takes too long or needs more than one look.
  void adopt(const ipc::Call& call, const void* send, void* recv, std::shared_ptr<Operation> operation);

 private:
  // How a call moves its data. kUnknown: not decided yet, as not all ranks have posted it, or have tried
  // to reach the others.
  enum class Protocol : uint8_t { kUnknown, kEager, kMapped, kKernel, kStaged };
  static bool is_direct(Protocol protocol) {
    return protocol == Protocol::kMapped || protocol == Protocol::kKernel;
  }
  // A call of this rank that is not finished.
  struct Entry {
    uint64_t sequence;
    ipc::Call call;
    const std::byte* send;
    std::byte* recv;
    std::shared_ptr<Operation> operation;
    // The number of its record (ipc/recorder.h).
    uint64_t record;
    Protocol protocol = Protocol::kUnknown;
    // When work on it began, if it is timed for the tuner; zero: it is not.
    std::chrono::steady_clock::time_point started{};
  };

  uint64_t contribution_bytes(const ipc::Call& call) const;
  // The maximum contribution that is copied into a payload where it cannot be mapped, and the maximum of the
  // express protocol: larger calls spend their time in moving bytes, and an allocation does not matter.
  uint64_t eager_bytes(const ipc::Call& call) const;
  // Whether the place of descriptor `sequence`, and of its payload if it has one, is free: every rank
  // has finished the call that was there before.
  bool may_post(uint64_t sequence, bool payload);
  // Tries to publish the next call. False: its place is not free yet, or the group has failed over it.
  bool try_post(const ipc::Call& call, const std::byte* send, std::byte* recv);
  // The places of this rank's buffers, as far as other ranks may need them. Errors are those of asking
  // the daemon.
  Result<ipc::Exposure> expose(const ipc::Call& call, const std::byte* send, const std::byte* recv) const;
  // Publishes the calls of the queue that are not published yet. True if it published any.
  bool post_calls();
  // True if every rank has posted the call, and the same one; a difference fails the group.
  bool all_posted(uint64_t sequence, const ipc::Call& call);
  // The protocol of a call that all have posted; kUnknown: ask again later.
  Protocol choose(const ipc::Call& call, uint64_t sequence);
  // Fills reached_ for a direct call. False: memory of a rank cannot be mapped, and the group has
  // failed.
  bool reach_all(const Entry& entry);
  // Does this rank's share of the oldest call whose share is not done. True if anything was done.
  bool work();
  // Completes the oldest call if it can be. True if so.
  bool finish();
  // Computes this rank's own result of an eager call.
  void take_eager(const ipc::Call& call, uint64_t sequence, const std::byte* send, std::byte* recv);
  // Does this rank's share of a direct call. False: the group has failed over it.
  bool share_work(const Entry& entry);
  // Counts the buffers of a call that has ended (RankState::buffer_bytes).
  void count_buffers(const ipc::Call& call, Protocol protocol) const;
  // Publishes that this rank has finished the call.
  void finished(uint64_t sequence);

  const NodeAccess& access_;
  Memory memory_;
  PeerMemory peer_memory_;
  Reach reach_;
  LocalMover mover_;
  StagedCall staged_;
  // Used by the node's first rank only, which decides for all.
  ProtocolTuner tuner_;
  std::deque<Entry> calls_;
  // Calls of this rank so far. The following three count calls, too: 0 <= worked_ <= posted_ <=
  // next_sequence_.
  uint64_t next_sequence_ = 0;
  uint64_t posted_ = 0;
  // Calls whose share this rank has done.
  uint64_t worked_ = 0;
  // Calls below are the same on all ranks.
  uint64_t compared_ = 0;
  // The latest express call: its record, and how often it was looked at.
  uint64_t express_record_ = 0;
  uint64_t express_looks_ = 0;
  // The latest time at which a look found it waiting, in ticks.
  uint64_t express_ticks_ = 0;
  // Every rank has finished the calls below. A lower bound, so that the rank states need not be read
  // each time.
  uint64_t known_finished_ = 0;
  // By local rank; filled in anew for each call, and kept so that calls allocate nothing.
  std::vector<Reached> reached_;
};

}  // namespace hdt::client
