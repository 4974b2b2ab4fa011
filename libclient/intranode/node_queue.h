// node_queue.h: collectives of a group of one node. No daemon takes part: ranks post their calls (ipc/post.h)
// and reach each other's buffers. By what the posts of a call say, all ranks of the node do the same of three
// things:
//   eager    all contributions are in the posts or their payloads: everyone takes its own result; one meeting
//   direct   everyone reaches everyone's buffers, mapped (memory of hdtMemAlloc) or through the kernel (any
//            other, where it is permitted and measured to be faster): everyone does its share in place; two
//            meetings, no staging
//   staged   the rest: piece by piece through the node's slots
// Not thread-safe: the communicator's lock is held.
#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "libclient/common/call_queue.h"
#include "libclient/daemon_client/allocations.h"
#include "libclient/intranode/local_mover.h"
#include "libclient/intranode/peer_memory.h"
#include "libclient/intranode/reach.h"
#include "libclient/intranode/staged_call.h"
#include "libclient/intranode/way_tuner.h"

namespace hdt::client {

class NodeQueue : public CallQueue {
 public:
  // How the queue exposes and reaches memory that processes share.
  struct Memory {
    std::function<Result<Allocations::Place>(const void*, size_t)> locate;
    PeerMemory::Open open;
  };
  NodeQueue(const NodeAccess& access, Memory memory);

  void push(const session::Call& call, const void* send, void* recv,
            std::shared_ptr<Operation> operation) override;
  bool progress() override;
  bool empty() const override { return calls_.empty(); }
  const Operation* oldest() const override {
    return calls_.empty() ? nullptr : calls_.front().operation.get();
  }
  uint64_t oldest_sequence() const override { return calls_.front().sequence; }
  const session::Call& oldest_call() const override { return calls_.front().call; }
  void fail_all(const Status& status) override;

  // The way of a small blocking call when nothing else is under way: no allocation, no queue. False: not a
  // case for it, nothing was done. True: posted; finish it with express_done() or adopt(). Nobody has been
  // woken for it yet: express_done() and adopt() do that, off the critical path.
  bool express(const session::Call& call, const void* send, void* recv);
  // Looks once at the call that express() has posted.
  enum class Express : uint8_t { kWaiting, kDone, kNeedsQueue };
  Express express_done(const session::Call& call, const void* send, void* recv);
  // It takes too long, or more than a look: the call becomes one of the queue.
  void adopt(const session::Call& call, const void* send, void* recv, std::shared_ptr<Operation> operation);

 private:
  enum class Way : uint8_t { kUnknown, kEager, kMapped, kKernel, kStaged };
  static bool is_direct(Way way) { return way == Way::kMapped || way == Way::kKernel; }
  struct Entry {
    uint64_t sequence;
    session::Call call;
    const std::byte* send;
    std::byte* recv;
    std::shared_ptr<Operation> operation;
    uint64_t record;  // ipc/recorder.h
    Way way = Way::kUnknown;
    std::chrono::steady_clock::time_point started{};  // where it is timed for the tuner
  };

  uint64_t contribution_bytes(const session::Call& call) const;
  bool may_post(uint64_t sequence, bool payload);
  // Tries to post the next call. False if its place is not free yet, or the group failed over it.
  bool try_post(const session::Call& call, const std::byte* send, std::byte* recv);
  Result<session::Exposure> expose(const session::Call& call, const std::byte* send,
                                   const std::byte* recv) const;
  bool post_calls();
  bool all_posted(uint64_t sequence, const session::Call& call);
  Way choose(const session::Call& call, uint64_t sequence);
  bool reach_all(const Entry& entry);
  bool work();
  bool finish();
  void take_eager(const session::Call& call, uint64_t sequence, const std::byte* send, std::byte* recv);
  bool share_work(const Entry& entry);
  void finished(uint64_t sequence);

  const NodeAccess& access_;
  Memory memory_;
  PeerMemory peer_memory_;
  Reach reach_;
  LocalMover mover_;
  StagedCall staged_;
  WayTuner tuner_;  // of the node's first rank
  std::deque<Entry> calls_;
  uint64_t next_sequence_ = 0;
  uint64_t posted_ = 0;
  uint64_t worked_ = 0;    // calls whose share this rank has done
  uint64_t compared_ = 0;  // calls below are the same on all ranks
  uint64_t express_record_ = 0;
  uint64_t express_looks_ = 0;
  uint64_t express_ticks_ = 0;   // when a look found the call waiting last
  uint64_t known_finished_ = 0;  // every rank has finished the calls below
  std::vector<Reached> reached_;
};

}  // namespace hdt::client
