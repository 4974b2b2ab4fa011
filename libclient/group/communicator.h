// communicator.h: a rank's membership in a group: its queues, the lock around them, waiting, deadlines,
// failure.
//
// A communicator has no thread of its own. Whichever thread of the rank is at hand takes the lock and
// moves everything that can be moved (progress_locked()): the thread that submits an operation, a thread
// that waits for one, or the process's progress thread for operations for which nobody waits. A waiting
// thread sleeps on the rank's doorbell, which peers and the daemon ring.
//
// Lock order: Communicator::mutex_, then Allocations' mutex, then everything in Session.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "libclient/common/own_core.h"
#include "libclient/common/spin.h"
#include "libclient/daemon_client/session.h"
#include "libclient/group/deterministic_calls.h"
#include "libclient/group/ring_queue.h"
#include "libclient/intranode/intranode_queue.h"

namespace hdt::client {

// Looks of a thread that has begun an operation for which it will wait later.
inline constexpr int kBriefRounds = 40;

// How the group was made. Constant for the life of the communicator.
struct CommunicatorOptions {
  // While the group is made: the key by which its ranks meet. Afterwards: the group's secret, from which
  // the keys of later groups are made.
  ipc::GroupKey key{};
  // Where the group was made: addresses of the coordinating daemon.
  std::string rendezvous;
  std::string group_class;
  // As the caller asked for it; "": the usual search.
  std::string socket;
  // Deadline of the making, and of each operation until set_timeout(), in ms.
  int64_t timeout_ms = 0;
  uint32_t ranks = 1;
  uint32_t rank = 0;
  // As the caller asked for it. It has an effect between nodes only (deterministic_calls.h).
  bool deterministic = false;
};

// Owned by the handle (hdtComm), by requests under way, and by the progress thread while operations are
// pending; it leaves its group at the latest when the last of them goes. Public functions may be called
// from any thread, unless a comment differs.
//
// Invariants: the group's failure is in the shared memory, not here, so all ranks of the node have the
// same; it is set once. Operations that are pending when it is set end with it. After leave() nothing
// can be submitted.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Wraps a group that was joined and takes this rank's seat. Returns when all ranks of the group are
  // seated, or with the reason why one of them cannot be; this rank has departed from the group then. Also
  // measures how long the daemon takes to answer (groups of several nodes; some ms).
  static Result<std::shared_ptr<Communicator>> make(const std::shared_ptr<Session>& session,
                                                    JoinedGroup joined, CommunicatorOptions options);
  // Leaves the group, if leave() was not called. May wait as leave() does.
  ~Communicator();

  const CommunicatorOptions& options() const { return options_; }
  // The deadline of each operation that begins from now on, in ms; of this rank alone. Any thread.
  int64_t timeout_ms() const { return timeout_ms_.load(std::memory_order_relaxed); }
  void set_timeout(int64_t ms);
  // Constant after make().
  const NodeAccess& access() const { return access_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  // Reductions go over `ring` from now on (deterministic_calls.h): a communicator over the same ranks
  // that nobody else uses. To be called before the first operation. On failure, which fails the group,
  // the reason.
  Status make_deterministic(std::shared_ptr<Communicator> ring);
  // The number of splits made of this group so far, which is then counted up. The same on all ranks, as
  // splits are collective.
  uint64_t next_split() { return splits_++; }
  // The number of smaller groups that were made of this one by hdtCommShrink with the same ranks left out,
  // which `without` names; the caller counts it up. The same on all their members, of which some may have
  // made groups without others. Valid as long as this object: whoever asks before it makes a group needs no
  // memory to count it.
  std::atomic<uint64_t>& shrinks(const std::string& without);

  // Submits a collective and does what can be done at once. The call must be valid (api/submit.h checks
  // it), and the buffers must stay until the operation is complete. Fails with the group's failure, or
  // with kInvalidArgument after leave(); then nothing was submitted.
  Result<std::shared_ptr<Operation>> collective(const ipc::Call& call, const void* send, void* recv);
  // The same to its end. Small calls in a group of one node take a shorter way (run_express()).
  Status run_collective(const ipc::Call& call, const void* send, void* recv);
  // Submits a message of `bytes` to or from rank `peer` (any rank of the group). Errors as collective().
  Result<std::shared_ptr<Operation>> send(uint32_t peer, const void* data, uint64_t bytes);
  Result<std::shared_ptr<Operation>> recv(uint32_t peer, void* data, uint64_t bytes);
  // The same from whichever rank sends first; see RingQueue::push_recv_any().
  Result<std::shared_ptr<Operation>> recv_any(void* data, uint64_t bytes, int* source);

  // Waits for the operation, and returns how it ended; kTimeout if `deadline` comes first, and the
  // operation goes on then. The calling thread does the work; the progress thread leaves the
  // communicator alone meanwhile.
  Status wait(Operation& operation, const Deadline& deadline);
  // Waits until nothing is pending, then leaves the group. Nothing can be submitted from its beginning
  // on. Only the first call does anything.
  void leave();
  // Fails the group with kAborted, on all nodes. Waits for nothing.
  Status abort();
  // For a rank that cannot take part in an operation that it has been asked for: fails the group with
  // the reason, as the others wait for this rank. Returns what they are sent.
  Status give_up(const Status& why);
  // For a call that returns by an exception: fails the group with `why`, and ends every operation of this
  // rank. When it returns, nobody uses their buffers any more. The group's failure reaches this node
  // through its daemon, which may be at work on them until then; a daemon that is silent for kSilentMs is
  // not waited for any longer. Returns what the others are sent. Throws nothing.
  Status abandon(const Status& why) noexcept;
  // Fails the group with a reason that names this rank already.
  void fail_with(const Status& why);
  // Why the group has failed; kSuccess while it works.
  Status failure() const { return access_.segment.failure(); }
  // The rank that the failure is about; -1: none, or no failure.
  int32_t failed_rank() const { return access_.segment.failed_rank(); }

  // Moves what can be moved. True if anything was done. For a thread that sleeps if nothing was: it waits for
  // the lock, as the thread that holds it may have looked just before the data came, and the ring for that
  // data may already be over.
  bool progress();
  // The same, unless another thread is at it; for a thread that does not sleep.
  bool try_progress();
  // Looks for some microseconds whether `done()`, and moves what can be moved. Only on one node, and where
  // each rank has a core to itself.
  template <typename Done>
  void look_briefly(Done done) {
    if (!access_.one_node()) return;
    for (int i = std::min(quick_rounds(access_.layout()), kBriefRounds); i > 0 && !done(); --i) {
      (void)try_progress();
      relax();
    }
  }
  // Operations are pending, and no thread waits in this communicator. Both values may change at any
  // time; a thread that stops waiting looks again and wakes the progress thread.
  bool needs_progress() const {
    return pending_.load(std::memory_order_acquire) && waiters_.load(std::memory_order_acquire) == 0;
  }
  ipc::RankState& rank_state() const { return access_.rank_state(); }
  // When the communicator must be looked at even if nothing happens: the earliest deadline of an
  // operation, or the end of the search for its cause.
  Deadline next_deadline() const;

 private:
  Communicator(std::shared_ptr<Session> session, JoinedGroup joined, CommunicatorOptions options,
               NodeAccess access);
  // Makes the object and begins to watch the session. kInternal: the daemon's group is not the one that
  // was asked for.
  static Result<std::shared_ptr<Communicator>> wrap(std::shared_ptr<Session> session, JoinedGroup joined,
                                                    CommunicatorOptions options);
  // The queue for collectives depends on the number of nodes.
  void make_queues();
  // Takes this rank's seat and waits until all ranks of the group have theirs, until the deadline.
  Status take_seat();
  bool all_seated() const;
  // The short way for a small blocking call; see the .cc file. mutex_ is held.
  bool run_express(const ipc::Call& call, const void* send, void* recv,
                   std::shared_ptr<Operation>& operation);
  // Moves everything that can be moved, looks at deadlines, and ends all operations if the group has
  // failed. mutex_ is held. True if anything was moved.
  bool progress_locked();
  // Asks for the cause of an overdue operation, and fails the group if no answer comes in time. mutex_
  // is held.
  void check_deadlines();
  // A text that says which operation's deadline has passed; "": none.
  std::string overdue() const;
  // Fails the group on all nodes. Any thread, with or without mutex_.
  void fail(Code code, int32_t rank, const std::string& text);
  // Called by the session's reader thread: the daemon is failed, or does not take the group over.
  void on_session_failed(const Status& why);
  // Called by the session's reader thread: the daemon has ended, and another one may come.
  void on_daemon_suspended();
  // Submits an operation by `push`, under the lock.
  template <typename Push>
  Result<std::shared_ptr<Operation>> post(Push push);

  // The next four are constant after make(), except that the session updates joined_.life under its own
  // lock.
  std::shared_ptr<Session> session_;
  JoinedGroup joined_;
  const CommunicatorOptions options_;
  std::atomic<int64_t> timeout_ms_;
  NodeAccess access_;
  OwnCore own_core_{access_};
  // Guards the queues, answer_until_, departed_ and abandoned_. Held while this rank's part of an operation
  // is done: copying and reducing happen under it.
  mutable std::mutex mutex_;
  std::unique_ptr<CallQueue> collectives_;
  // The same object as collectives_ in a group of one node; null in a group of several.
  IntranodeQueue* intranode_queue_ = nullptr;
  RingQueue rings_;
  // Until when the daemon may search for the cause of an overdue operation; never: it was not asked.
  Deadline answer_until_ = Deadline::never();
  // Operations are pending. Written under mutex_, read without it.
  std::atomic<bool> pending_{false};
  // Threads that wait in this communicator and so make progress for all operations.
  std::atomic<int> waiters_{0};
  std::atomic<uint64_t> splits_{0};
  std::mutex shrinks_mutex_;
  std::map<std::string, std::atomic<uint64_t>> shrinks_;  // guarded by shrinks_mutex_, the counts are not
  // The number of this group in the session's list; 0: it is not in it.
  uint64_t watch_ = 0;
  bool departed_ = true;  // false while the rank has its seat
  // Set by abandon(): the queues are empty, and their places in shared memory do not say so. From then on
  // nothing is submitted.
  bool abandoned_ = false;
  // The daemon was sent a failure of the group, which it has to pass on to everyone (leave()).
  std::atomic<bool> told_daemon_{false};
  // Null: reductions go through collectives_. The last member, as its thread uses the others.
  std::unique_ptr<DeterministicCalls> deterministic_;
};

}  // namespace hdt::client
