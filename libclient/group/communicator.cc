// communicator.cc: making, waiting and failing; communicator_end.cc has the ways to leave. See
// communicator.h for who does the work and for the order of locks.
//
// A failure has one home, the group's shared memory. In a group of one node the rank that finds it
// writes it there. In a group of several nodes the daemon does, since it has to send it to the other
// nodes as well; only if the daemon is failed does the rank write it itself.
#include "libclient/group/communicator.h"

#include <unistd.h>

#include "base/contained.h"
#include "base/log.h"
#include "libclient/common/out_of_memory.h"
#include "libclient/common/spin.h"
#include "libclient/daemon_client/daemon_echo.h"
#include "libclient/group/progress_thread.h"
#include "libclient/internode/internode_queue.h"

namespace hdt::client {

using ipc::Kind;

namespace {

// How long the daemons may search for the cause of an overdue operation, in ms. Afterwards the group
// fails with what is known here.
constexpr int64_t kSearchMs = 4'000;

// Looks of the express way before it rings peers that may sleep. If no peer sleeps, the call is over by
// then, and the fence that ringing costs is not waited for.
constexpr int kQuietRounds = 20;

// For a call that another thread's hdtCommDestroy has overtaken.
Status being_destroyed() {
  return {Code::kInvalidArgument, "comm is no communicator any more: another thread is destroying it"};
}

// While it lives the progress thread leaves the communicator alone.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& waiters) : waiters_(waiters) {
    waiters_.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Waiting() { waiters_.fetch_sub(1, std::memory_order_acq_rel); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& waiters_;
};

}  // namespace

// 1. Wrap the memory. A failure up to here is reported by the session, which gives the seat up: the
//    other ranks wait for this one.
// 2. Take the seat. A failure here has failed the group already, and the object's destructor leaves it.
// 3. Measure the daemon's echo, before the first operation.
Result<std::shared_ptr<Communicator>> Communicator::make(const std::shared_ptr<Session>& session,
                                                         JoinedGroup joined, CommunicatorOptions options) {
  const auto rank = static_cast<int32_t>(options.rank);
  const uint32_t handle = joined.handle;
  Result<std::shared_ptr<Communicator>> made = Status();
  try {
    made = wrap(session, std::move(joined), std::move(options));
  } catch (const std::bad_alloc&) {
    // Without this the other ranks would wait for this one until their deadline.
    made = out_of_memory();
  }
  if (!made.is_ok()) {
    Status sent(Code::kSystem, "no memory");
    (void)contained("a seat that is given up",
                    [&] { sent = session->give_up_seat(handle, rank, made.status()); });
    return sent;
  }
  Communicator& communicator = *made.value();
  Status seated;
  (void)contained(
      "a seat in a group",
      [&] {
        seated = communicator.take_seat();
        if (seated.is_ok() && !communicator.access_.one_node()) measure_echo(communicator.access_);
      },
      [&](const std::string& /*why*/) { seated = communicator.abandon(out_of_memory()); });
  if (!seated.is_ok()) return seated;
  return made;
}

// The daemon made the memory, but the member table is checked all the same: everything below computes
// with it.
Result<std::shared_ptr<Communicator>> Communicator::wrap(std::shared_ptr<Session> session, JoinedGroup joined,
                                                         CommunicatorOptions options) {
  auto segment = ipc::Segment::attach(joined.memory.data(), joined.memory.size());
  if (!segment.is_ok()) return segment.status();
  const ipc::Layout& layout = segment.value().layout();
  const uint32_t node = segment.value().header().node;
  std::vector<uint32_t> node_of_rank;
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    node_of_rank.push_back(segment.value().members()[rank].node);
    if (node_of_rank.back() >= layout.nodes)
      return Status(Code::kInternal, "a member of the group is on no node");
  }
  // The group must be the one that was asked for, with this rank on this node.
  if (layout.ranks != options.ranks || node_of_rank[options.rank] != node ||
      joined.local_index >= layout.local_ranks) {
    return Status(Code::kInternal, "the group that the daemon made is not the one that was asked for");
  }
  // The object has the memory from its beginning, and the seat only at the end of this function: where an
  // allocation fails before that, make() gives the seat up, with the reason.
  NodeAccess access;
  access.segment = segment.value();
  access.order = ipc::Order(std::move(node_of_rank), layout.nodes);
  access.rank = options.rank;
  access.local = joined.local_index;
  access.node = node;
  std::shared_ptr<Communicator> made(
      new Communicator(std::move(session), std::move(joined), std::move(options), std::move(access)));
  // The callbacks in access_ are used by members of the object only, so they may hold a plain pointer.
  // Those of the session may come at any time, from its reader thread, so they hold a weak one.
  made->access_.ring_daemon = [raw = made.get()] {
    raw->session_->ring(raw->joined_.engine, raw->joined_.handle);
  };
  made->access_.fail = [raw = made.get()](Code code, int32_t rank, const std::string& text) {
    raw->fail(code, rank, text);
  };
  made->make_queues();
  std::weak_ptr<Communicator> weak = made;
  made->watch_ = made->session_->watch({&made->joined_,
                                        [weak](const Status& why) {
                                          if (const auto alive = weak.lock()) alive->on_session_failed(why);
                                        },
                                        [weak] {
                                          if (const auto alive = weak.lock()) alive->on_daemon_suspended();
                                        }});
  // The daemon ended between the join and here, and no other one will come.
  if (made->watch_ == 0) made->on_session_failed({Code::kDaemonLost, "the daemon ended"});
  const std::lock_guard lock(made->mutex_);
  made->departed_ = false;
  return made;
}

// On one node the ranks see each other's pids; between nodes the daemons collect that, and set `seated`.
bool Communicator::all_seated() const {
  if (!access_.one_node()) return access_.segment.header().seated.load(std::memory_order_acquire) != 0;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    if (access_.segment.rank_state(i).pid.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

Status Communicator::take_seat() {
  // The pid is the seat. release: a rank that sees it sees what this rank has set up before (its proof,
  // reach.h). The daemon looks at it, too.
  rank_state().pid.store(static_cast<uint32_t>(::getpid()), std::memory_order_release);
  if (access_.one_node()) {
    access_.ring_peers();
  } else {
    access_.ring_daemon();
  }
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  // The Sleeper comes before the look, so that a ring in between is not lost (base/doorbell.h).
  for (;;) {
    const Sleeper sleeper(rank_state().doorbell);
    if (all_seated()) return Status::ok();
    if (access_.segment.failed()) return failure();
    if (deadline.expired()) {
      const Status late(Code::kTimeout,
                        "the deadline of " + std::to_string(options_.timeout_ms) +
                            " ms passed while ranks that have joined the group took their seats");
      fail(late.code(), -1, late.message());
      return late;
    }
    sleeper.sleep(deadline);
  }
}

Communicator::Communicator(std::shared_ptr<Session> session, JoinedGroup joined, CommunicatorOptions options,
                           NodeAccess access)
    : session_(std::move(session)),
      joined_(std::move(joined)),
      options_(std::move(options)),
      timeout_ms_(options_.timeout_ms),
      access_(std::move(access)),
      rings_(access_) {}

// `locate` and the opening of peers' memory ask the daemon on the first use of an allocation, with
// mutex_ held.
void Communicator::make_queues() {
  const auto locate = [this](const void* pointer, size_t bytes) {
    return Allocations::instance().locate(pointer, bytes, session_, joined_.handle);
  };
  if (!access_.one_node()) {
    collectives_ = std::make_unique<InternodeQueue>(access_, locate);
    return;
  }
  auto queue = std::make_unique<IntranodeQueue>(
      access_, IntranodeQueue::Memory{locate, [this](uint64_t memory) {
                                        return session_->open_memory(joined_.handle, memory);
                                      }});
  intranode_queue_ = queue.get();
  collectives_ = std::move(queue);
}

// First the session lets go. A callback that its reader thread is about to make finds the weak pointer
// expired.
Communicator::~Communicator() {
  session_->unwatch(watch_);
  leave();
}

// In a group of several nodes the notice goes to the daemon, which writes the failure to the memory of all
// nodes. If the session is failed, or there is no memory for the notice, the rank writes it here itself.
// told_daemon_ is for leave().
void Communicator::fail(Code code, int32_t rank, const std::string& text) {
  bool sent = false;
  if (!access_.one_node()) {
    (void)contained("the notice of a failure", [&] {
      sent = session_->notify(Kind::kFail, {joined_.handle, code, rank, text}).is_ok();
    });
  }
  if (sent) {
    told_daemon_.store(true, std::memory_order_release);
  } else {
    access_.segment.fail(code, rank, text);
  }
}

// An embedded daemon ends with the process that hosted it. If that process was a rank of this group
// and had not departed, the rank has failed, and the group fails. `hosts` is the daemon's own mark. On one
// node the failure is written at once; between nodes the notice waits for the successor, which passes it
// on.
void Communicator::on_daemon_suspended() {
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const ipc::RankState& rank_state = access_.segment.rank_state(i);
    if (rank_state.hosts.load(std::memory_order_acquire) == 0 ||
        rank_state.departed.load(std::memory_order_acquire) != 0)
      continue;
    const uint32_t rank = access_.rank_of(i);
    return fail(Code::kRankLost, static_cast<int32_t>(rank),
                "rank " + std::to_string(rank) + " (pid " +
                    std::to_string(rank_state.pid.load(std::memory_order_relaxed)) +
                    "), which hosted the daemon of node " + session_->daemon().node + ", ended");
  }
}

// The daemon cannot be reached, so the failure is written here; every rank of the node does so, and the
// first one counts. The other nodes notice by their links.
void Communicator::on_session_failed(const Status& why) {
  access_.segment.fail(why.code(), -1, why.message());
}

// The operation's deadline begins here. After the push everything possible is done at once, so that a
// small operation may be complete when this returns. The check of departed_ and the push are under one lock,
// so leave() waits for everything that was submitted.
template <typename Push>
Result<std::shared_ptr<Operation>> Communicator::post(Push push) {
  auto operation = std::make_shared<Operation>(timeout_ms());
  const std::lock_guard lock(mutex_);
  if (departed_) return being_destroyed();
  if (access_.segment.failed()) return access_.segment.failure();
  if (abandoned_) return Status(Code::kSystem, "a call of this rank has failed");
  push(operation);
  // Before progress: progress_locked() sets it to false again if nothing is left.
  pending_.store(true, std::memory_order_release);
  progress_locked();
  return operation;
}

// The callback runs on the calls' own thread after each operation. A failure of the ring becomes one
// of this group; the ring wakes waiters of this rank, whose operation is complete.
Status Communicator::make_deterministic(std::shared_ptr<Communicator> ring) {
  auto calls = std::make_unique<DeterministicCalls>(std::move(ring), [this](const Status& status) {
    if (!status.is_ok()) fail(status.code(), -1, status.message());
    rank_state().doorbell.ring();
  });
  const Status started = calls->start();
  if (!started.is_ok()) return give_up(started);
  deterministic_ = std::move(calls);
  return Status::ok();
}

void Communicator::set_timeout(int64_t ms) {
  timeout_ms_.store(ms, std::memory_order_relaxed);
  if (deterministic_ != nullptr) deterministic_->set_timeout(ms);
}

std::atomic<uint64_t>& Communicator::shrinks(const std::string& without) {
  const std::lock_guard lock(shrinks_mutex_);
  return shrinks_[without];
}

Result<std::shared_ptr<Operation>> Communicator::collective(const ipc::Call& call, const void* send,
                                                            void* recv) {
  // Such a call is not in the queue: its own thread moves it, and waiters sleep until it rings.
  if (deterministic_ != nullptr && reduces(call.what)) {
    if (access_.segment.failed()) return access_.segment.failure();
    auto operation = std::make_shared<Operation>(timeout_ms());
    deterministic_->push(call, send, recv, operation);
    return operation;
  }
  return post([&](const auto& operation) { collectives_->push(call, send, recv, operation); });
}

Result<std::shared_ptr<Operation>> Communicator::send(uint32_t peer, const void* data, uint64_t bytes) {
  return post([&](const auto& operation) { rings_.push_send(peer, data, bytes, operation); });
}

Result<std::shared_ptr<Operation>> Communicator::recv(uint32_t peer, void* data, uint64_t bytes) {
  return post([&](const auto& operation) { rings_.push_recv(peer, data, bytes, operation); });
}

Result<std::shared_ptr<Operation>> Communicator::recv_any(void* data, uint64_t bytes, int* source) {
  return post([&](const auto& operation) { rings_.push_recv_any(data, bytes, source, operation); });
}

// 1. Move calls and messages.
// 2. Look at deadlines; they may fail the group.
// 3. If the group has failed, end everything with that failure. The ring is for other threads of this
//    rank, whose operations are complete now.
// 4. Note whether anything is pending, for threads without the lock.
bool Communicator::progress_locked() {
  bool any = collectives_->progress();
  any |= rings_.progress();
  check_deadlines();
  if (access_.segment.failed()) {
    const Status status = access_.segment.failure();
    collectives_->fail_all(status);
    rings_.fail_all(status);
    rank_state().doorbell.ring();
  }
  pending_.store(!collectives_->empty() || !rings_.empty(), std::memory_order_release);
  return any;
}

std::string Communicator::overdue() const {
  std::string what;
  int64_t timeout_ms = 0;
  // Only the oldest collective and the most urgent message can be the first to be late.
  if (const Operation* late = collectives_->oldest(); late != nullptr && late->deadline.expired()) {
    timeout_ms = late->timeout_ms;
    what = " in call " + std::to_string(collectives_->oldest_sequence()) + " (" +
           ipc::describe(collectives_->oldest_call()) + ")";
  } else if (const auto message = rings_.most_urgent(); message && message->operation->deadline.expired()) {
    timeout_ms = message->operation->timeout_ms;
    what = ": " + message->what;
  } else {
    return what;
  }
  return "the deadline of " + std::to_string(timeout_ms) + " ms passed" + what;
}

// Two steps. When an operation is overdue, the daemon is asked to find out which rank is missing and
// why, and to fail the group with that verdict (docs/design/diagnosis.md). If it has not done so after
// kSearchMs, the group fails with the text of this rank. Several ranks may ask; the daemon hears each
// rank once.
void Communicator::check_deadlines() {
  const std::string what = overdue();
  if (what.empty()) return;
  if (answer_until_.is_never()) {
    answer_until_ = Deadline::after_ms(kSearchMs);
    (void)session_->notify(Kind::kDeadline, {joined_.handle, Code::kTimeout, -1, what});
  } else if (answer_until_.expired()) {
    fail(Code::kTimeout, -1, what + "; the daemon gave no reason");
  }
}

// While the daemon searches, its own deadline is the next one: the operations' are over.
Deadline Communicator::next_deadline() const {
  const std::lock_guard lock(mutex_);
  if (!answer_until_.is_never()) return answer_until_;
  Deadline next = Deadline::never();
  if (const Operation* oldest = collectives_->oldest()) next = oldest->deadline;
  if (const auto urgent = rings_.most_urgent()) next = Deadline::earlier(next, urgent->operation->deadline);
  return next;
}

bool Communicator::progress() {
  const std::lock_guard lock(mutex_);
  return progress_locked();
}

// A thread that holds the lock does the work itself, so this one does not wait for it.
bool Communicator::try_progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && progress_locked();
}

// The express way of a small blocking call in a group of one node: post the descriptor, look for those
// of the others, compute the result; no allocation, no queue, and no lock but mutex_. It works only if
// no other call of this rank is under way.
//
// True if the call is complete. False: it was not begun, or, if `operation` is set, it was handed to the
// queue and has to be waited for. The steps:
// 1. Post.
// 2. Look kQuietRounds times without having rung anybody, unless another rank is on this core.
// 3. Ring the peers, which may sleep until this call is posted, and look on for as long as any waiter
//    spins.
// 4. If it is still not complete, or turns out to need more than one look, hand it to the queue.
//
// mutex_ is held.
bool Communicator::run_express(const ipc::Call& call, const void* send, void* recv,
                               std::shared_ptr<Operation>& operation) {
  using Express = IntranodeQueue::Express;
  if (intranode_queue_ == nullptr || departed_ || abandoned_ || access_.segment.failed() ||
      !intranode_queue_->express(call, send, recv))
    return false;
  auto state = Express::kWaiting;
  const auto look = [&] {
    state = intranode_queue_->express_done(call, send, recv);
    return state != Express::kWaiting;
  };
  own_core_.publish();
  const int quiet = own_core_.shared() ? 0 : std::min(quick_rounds(access_.layout()), kQuietRounds);
  for (int i = 0; i < quiet && !look(); ++i) relax();
  if (state == Express::kWaiting) {
    access_.ring_peers();  // somebody may sleep until this call is posted
    spin(own_core_.quick_rounds(), look);
  }
  if (state == Express::kDone) return true;
  // Only now is there an allocation and a deadline: the call has lasted some tens of microseconds.
  operation = std::make_shared<Operation>(timeout_ms());
  intranode_queue_->adopt(call, send, recv, operation);
  pending_.store(true, std::memory_order_release);
  return false;
}

// 1. Try the express way.
// 2. Otherwise submit the call, unless the express way has done that.
// 3. Wait for it.
Status Communicator::run_collective(const ipc::Call& call, const void* send, void* recv) {
  std::shared_ptr<Operation> operation;
  {
    // Other threads of this rank wait for the lock meanwhile: a call that is not over soon leaves the
    // express way.
    const std::lock_guard lock(mutex_);
    if (run_express(call, send, recv, operation)) return Status::ok();
  }
  if (operation == nullptr) {
    auto posted = collective(call, send, recv);
    if (!posted.is_ok()) return posted.status();
    operation = posted.take();
  }
  return wait(*operation, Deadline::never());
}

// Progress, spinning at first (spin.h), then asleep on the doorbell. The Sleeper comes before the last
// look, so that no ring is lost between the look and the sleep. Whoever waits for other nodes spins for as
// long as the core is not wanted by others: the one that it waits for needs a core, too.
Status Communicator::wait(Operation& operation, const Deadline& deadline) {
  const auto progressed = [&] {
    const std::lock_guard lock(mutex_);
    return progress_locked() || operation.done();
  };
  Status result;
  {
    const Waiting waiting(waiters_);
    while (!operation.done()) {
      const int quick = own_core_.quick_rounds();
      if (access_.one_node() ? spin(quick, progressed) : spin_patiently(quick, progressed)) continue;
      const Sleeper sleeper(rank_state().doorbell);
      if (progressed()) continue;
      if (deadline.expired()) {
        result = Status(Code::kTimeout, "the operation is not complete yet");
        break;
      }
      // A sleep ends at the latest when a deadline has to be looked at: nobody rings for that.
      sleeper.sleep(Deadline::earlier(deadline, next_deadline()));
    }
  }
  // Operations of others may be left for which nobody waits any more.
  if (needs_progress()) ProgressThread::instance().wake(shared_from_this());
  return operation.done() ? operation.status() : result;
}

}  // namespace hdt::client
