// communicator.h: a rank's membership in a group: its queues, the lock around them, waiting, deadlines,
// failure. Lock order: Communicator::mutex_ before everything in Session.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "libclient/daemon_client/session.h"
#include "libclient/group/channel_queue.h"
#include "libclient/group/deterministic_calls.h"
#include "libclient/intranode/node_queue.h"

namespace hdt::client {

struct CommunicatorOptions {
  session::GroupKey key{};
  std::string rendezvous;  // where the group was made: split groups are made at the same kind of place
  std::string group_class;
  std::string socket;  // as asked for by the caller
  int64_t timeout_ms = 0;
  uint32_t ranks = 1;
  uint32_t rank = 0;
  bool deterministic = false;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Wraps a group that was joined. Returns when all its ranks have, or with the reason why one of them
  // cannot; this rank has left the group then.
  static Result<std::shared_ptr<Communicator>> make(std::shared_ptr<Session> session, JoinedGroup joined,
                                                    CommunicatorOptions options);
  ~Communicator();

  const CommunicatorOptions& options() const { return options_; }
  const NodeAccess& access() const { return access_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  // Reductions go over `channel` from now on (deterministic_calls.h). Before the first operation. Failure
  // fails the group.
  Status make_deterministic(std::shared_ptr<Communicator> channel);
  // Number of splits made of this group; the same on all ranks, as splits are collective.
  uint64_t next_split() { return splits_++; }
  // Smaller groups that were made of it: the same on all their members.
  uint64_t shrinks() const { return shrinks_; }
  void shrunk() { ++shrinks_; }

  Result<std::shared_ptr<Operation>> collective(const session::Call& call, const void* send, void* recv);
  // The same to its end. Small calls in a group of one node take a shorter way.
  Status run_collective(const session::Call& call, const void* send, void* recv);
  Result<std::shared_ptr<Operation>> send(uint32_t peer, const void* data, uint64_t bytes);
  Result<std::shared_ptr<Operation>> recv(uint32_t peer, void* data, uint64_t bytes);

  // Waits for the operation; kTimeout if `deadline` comes first. Takes the work over from the progress
  // thread.
  Status wait(Operation& operation, const Deadline& deadline);
  // Waits until nothing is pending, then leaves the group.
  void leave();
  Status abort();
  // This rank cannot take part in an operation that it has been asked for: fails the group, as the others
  // wait for it. Returns what they are told.
  Status give_up(const Status& why);
  Status failure() const { return access_.segment.failure(); }

  // --- for the progress thread ---
  // Moves what can be moved, unless another thread is at it. True if anything was done.
  bool try_progress();
  // Operations are pending and no thread waits in this communicator.
  bool needs_progress() const {
    return pending_.load(std::memory_order_acquire) && waiters_.load(std::memory_order_acquire) == 0;
  }
  session::Board& board() const { return access_.board(); }
  Deadline next_deadline() const;

 private:
  Communicator(std::shared_ptr<Session> session, JoinedGroup joined, CommunicatorOptions options);
  static Result<std::shared_ptr<Communicator>> wrap(std::shared_ptr<Session> session, JoinedGroup joined,
                                                    CommunicatorOptions options);
  void make_queues();
  // Takes this rank's seat and waits until all ranks of the group have theirs.
  Status take_seat();
  bool all_seated() const;
  bool run_express(const session::Call& call, const void* send, void* recv,
                   std::shared_ptr<Operation>& operation);
  bool progress_locked();
  void check_deadlines();
  // What a deadline has passed in; empty: in nothing.
  std::string overdue() const;
  void fail(Code code, int32_t rank, const std::string& text);
  void on_session_lost(const Status& why);
  void on_daemon_away();
  template <typename Push>
  Result<std::shared_ptr<Operation>> post(Push push);

  std::shared_ptr<Session> session_;
  JoinedGroup joined_;
  CommunicatorOptions options_;
  NodeAccess access_;
  mutable std::mutex mutex_;
  std::unique_ptr<CallQueue> collectives_;
  NodeQueue* node_queue_ = nullptr;  // collectives_, in a group of one node
  ChannelQueue channels_;
  Deadline answer_until_ = Deadline::never();  // for the daemon's search for late ranks
  std::atomic<bool> pending_{false};
  std::atomic<int> waiters_{0};
  std::atomic<uint64_t> splits_{0};
  std::atomic<uint64_t> shrinks_{0};
  uint64_t watch_ = 0;
  bool left_ = false;
  std::atomic<bool> told_daemon_{false};               // of a failure, which it has to tell everyone
  std::unique_ptr<DeterministicCalls> deterministic_;  // last: its thread uses the others
};

}  // namespace hdt::client
