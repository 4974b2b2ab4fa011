#include "libclient/group/communicator.h"

#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "libclient/common/spin.h"
#include "libclient/daemon_client/daemon_echo.h"
#include "libclient/group/progress_thread.h"
#include "libclient/internode/collective_queue.h"

namespace hdt::client {

using session::Kind;

namespace {

// After this the daemon's search for the cause is given up and the group is failed with what is known here.
constexpr int64_t kSearchMs = 4'000;

// So often it looks before it rings those who may sleep: where nobody does, the call is over by then, and the
// fence that ringing takes is not waited for.
constexpr int kQuietRounds = 20;

// A call that another thread's hdtCommDestroy has overtaken.
Status being_destroyed() {
  return {Code::kInvalidArgument, "comm is no communicator any more: another thread is destroying it"};
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::make(std::shared_ptr<Session> session, JoinedGroup joined,
                                                         CommunicatorOptions options) {
  const auto rank = static_cast<int32_t>(options.rank);
  const uint32_t handle = joined.handle;
  Result<std::shared_ptr<Communicator>> made = Status();
  try {
    made = wrap(session, std::move(joined), std::move(options));
  } catch (const std::bad_alloc&) {
    made = Status(Code::kSystem, "process " + own_process() + " has no memory for it");
  }
  if (!made.is_ok()) return session->give_up_seat(handle, rank, made.status());
  HDT_RETURN_IF_ERROR(made.value()->take_seat());
  if (!made.value()->access_.one_node()) measure_echo(made.value()->access_);
  return made;
}

Result<std::shared_ptr<Communicator>> Communicator::wrap(std::shared_ptr<Session> session, JoinedGroup joined,
                                                         CommunicatorOptions options) {
  auto segment = session::Segment::attach(joined.memory.data(), joined.memory.size());
  if (!segment.is_ok()) return segment.status();
  const session::Layout& layout = segment.value().layout();
  const uint32_t node = segment.value().header().node;
  std::vector<uint32_t> node_of_rank;
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    node_of_rank.push_back(segment.value().members()[rank].node);
    if (node_of_rank.back() >= layout.nodes)
      return Status(Code::kInternal, "a member of the group is on no node");
  }
  if (layout.ranks != options.ranks || node_of_rank[options.rank] != node ||
      joined.local_index >= layout.local_ranks) {
    return Status(Code::kInternal, "the group that the daemon made is not the one that was asked for");
  }
  std::shared_ptr<Communicator> made(
      new Communicator(std::move(session), std::move(joined), std::move(options)));
  made->access_.segment = segment.value();
  made->access_.order = session::Order(std::move(node_of_rank), layout.nodes);
  made->access_.rank = made->options_.rank;
  made->access_.local = made->joined_.local_index;
  made->access_.node = node;
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
                                          if (const auto alive = weak.lock()) alive->on_session_lost(why);
                                        },
                                        [weak] {
                                          if (const auto alive = weak.lock()) alive->on_daemon_away();
                                        }});
  if (made->watch_ == 0) made->on_session_lost({Code::kDaemonLost, "the daemon went away"});
  return made;
}

bool Communicator::all_seated() const {
  if (!access_.one_node()) return access_.segment.header().seated.load(std::memory_order_acquire) != 0;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    if (access_.segment.board(i).pid.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

Status Communicator::take_seat() {
  board().pid.store(static_cast<uint32_t>(::getpid()), std::memory_order_release);
  if (access_.one_node()) {
    access_.ring_peers();
  } else {
    access_.ring_daemon();
  }
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  for (;;) {
    const Sleeper sleeper(board().doorbell);
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

Communicator::Communicator(std::shared_ptr<Session> session, JoinedGroup joined, CommunicatorOptions options)
    : session_(std::move(session)),
      joined_(std::move(joined)),
      options_(std::move(options)),
      channels_(access_) {}

void Communicator::make_queues() {
  const auto locate = [this](const void* pointer, size_t bytes) {
    return Allocations::instance().locate(pointer, bytes, session_, joined_.handle);
  };
  if (!access_.one_node()) {
    collectives_ = std::make_unique<CollectiveQueue>(access_, locate);
    return;
  }
  auto queue = std::make_unique<NodeQueue>(access_, NodeQueue::Memory{locate, [this](uint64_t memory) {
                                                                        return session_->open_memory(
                                                                            joined_.handle, memory);
                                                                      }});
  node_queue_ = queue.get();
  collectives_ = std::move(queue);
}

Communicator::~Communicator() {
  session_->unwatch(watch_);
  leave();
}

// The daemon's word on a group of several nodes; on one node the ranks are told directly. Both reach
// everyone.
void Communicator::fail(Code code, int32_t rank, const std::string& text) {
  const session::GroupNotice notice{joined_.handle, code, rank, text};
  if (access_.one_node() || !session_->notify(Kind::kFail, notice).is_ok()) {
    access_.segment.fail(code, rank, text);
  } else {
    told_daemon_.store(true, std::memory_order_release);
  }
}

// An embedded daemon is gone with the process that hosted it. If that was a rank of this group and had not
// left, it is what was lost.
void Communicator::on_daemon_away() {
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const session::Board& board = access_.segment.board(i);
    if (board.hosts.load(std::memory_order_acquire) == 0 || board.left.load(std::memory_order_acquire) != 0)
      continue;
    const uint32_t rank = access_.rank_of(i);
    return fail(Code::kRankLost, static_cast<int32_t>(rank),
                "rank " + std::to_string(rank) + " (pid " +
                    std::to_string(board.pid.load(std::memory_order_relaxed)) +
                    "), which hosted the daemon of node " + session_->daemon().node + ", ended");
  }
}

void Communicator::on_session_lost(const Status& why) { access_.segment.fail(why.code(), -1, why.message()); }

template <typename Push>
Result<std::shared_ptr<Operation>> Communicator::post(Push push) {
  auto operation = std::make_shared<Operation>(Deadline::after_ms(options_.timeout_ms));
  const std::lock_guard lock(mutex_);
  if (left_) return being_destroyed();
  if (access_.segment.failed()) return access_.segment.failure();
  push(operation);
  pending_.store(true, std::memory_order_release);
  progress_locked();
  return operation;
}

Status Communicator::make_deterministic(std::shared_ptr<Communicator> channel) {
  auto calls = std::make_unique<DeterministicCalls>(std::move(channel), [this](const Status& status) {
    if (!status.is_ok()) fail(status.code(), -1, status.message());
    board().doorbell.ring();
  });
  const Status started = calls->start();
  if (!started.is_ok()) return give_up(started);
  deterministic_ = std::move(calls);
  return Status::ok();
}

Result<std::shared_ptr<Operation>> Communicator::collective(const session::Call& call, const void* send,
                                                            void* recv) {
  if (deterministic_ != nullptr && reduces(call.what)) {
    if (access_.segment.failed()) return access_.segment.failure();
    auto operation = std::make_shared<Operation>(Deadline::after_ms(options_.timeout_ms));
    deterministic_->push(call, send, recv, operation);
    return operation;
  }
  return post([&](const auto& operation) { collectives_->push(call, send, recv, operation); });
}

Result<std::shared_ptr<Operation>> Communicator::send(uint32_t peer, const void* data, uint64_t bytes) {
  return post([&](const auto& operation) { channels_.push_send(peer, data, bytes, operation); });
}

Result<std::shared_ptr<Operation>> Communicator::recv(uint32_t peer, void* data, uint64_t bytes) {
  return post([&](const auto& operation) { channels_.push_recv(peer, data, bytes, operation); });
}

bool Communicator::progress_locked() {
  bool any = collectives_->progress();
  any |= channels_.progress();
  check_deadlines();
  if (access_.segment.failed()) {
    const Status status = access_.segment.failure();
    collectives_->fail_all(status);
    channels_.fail_all(status);
    board().doorbell.ring();
  }
  pending_.store(!collectives_->empty() || !channels_.empty(), std::memory_order_release);
  return any;
}

std::string Communicator::overdue() const {
  std::string what;
  if (const Operation* late = collectives_->oldest(); late != nullptr && late->deadline.expired()) {
    what = " in call " + std::to_string(collectives_->oldest_sequence()) + " (" +
           session::describe(collectives_->oldest_call()) + ")";
  } else if (const auto message = channels_.most_urgent();
             message && message->operation->deadline.expired()) {
    what = ": " + message->what;
  } else {
    return what;
  }
  return "the deadline of " + std::to_string(options_.timeout_ms) + " ms passed" + what;
}

void Communicator::check_deadlines() {
  const std::string what = overdue();
  if (what.empty()) return;
  if (answer_until_.is_never()) {
    answer_until_ = Deadline::after_ms(kSearchMs);
    (void)session_->notify(Kind::kDeadline, {joined_.handle, Code::kTimeout, -1, what});
  } else if (answer_until_.expired()) {
    fail(Code::kTimeout, -1, what + "; the daemon does not say why");
  }
}

Deadline Communicator::next_deadline() const {
  const std::lock_guard lock(mutex_);
  if (!answer_until_.is_never()) return answer_until_;
  Deadline next = Deadline::never();
  if (const Operation* oldest = collectives_->oldest()) next = oldest->deadline;
  if (const auto urgent = channels_.most_urgent())
    next = Deadline::earlier(next, urgent->operation->deadline);
  return next;
}

bool Communicator::try_progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && progress_locked();
}

// True if the call is complete. False: not begun, or, if there is an operation, handed to the queue. mutex_
// is held.
bool Communicator::run_express(const session::Call& call, const void* send, void* recv,
                               std::shared_ptr<Operation>& operation) {
  using Express = NodeQueue::Express;
  if (node_queue_ == nullptr || left_ || access_.segment.failed() || !node_queue_->express(call, send, recv))
    return false;
  auto state = Express::kWaiting;
  const auto look = [&] {
    state = node_queue_->express_done(call, send, recv);
    return state != Express::kWaiting;
  };
  const int quick = quick_rounds(access_.layout());
  for (int i = 0; i < std::min(quick, kQuietRounds) && !look(); ++i) relax();
  if (state == Express::kWaiting) {
    access_.ring_peers();  // somebody may sleep until this call is posted
    spin(quick, look);
  }
  if (state == Express::kDone) return true;
  operation = std::make_shared<Operation>(Deadline::after_ms(options_.timeout_ms));
  node_queue_->adopt(call, send, recv, operation);
  pending_.store(true, std::memory_order_release);
  return false;
}

Status Communicator::run_collective(const session::Call& call, const void* send, void* recv) {
  std::shared_ptr<Operation> operation;
  {
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

Status Communicator::wait(Operation& operation, const Deadline& deadline) {
  waiters_.fetch_add(1, std::memory_order_acq_rel);
  const auto progressed = [&] {
    const std::lock_guard lock(mutex_);
    return progress_locked() || operation.done();
  };
  Status result;
  while (!operation.done()) {
    if (spin(quick_rounds(access_.layout()), progressed)) continue;
    const Sleeper sleeper(board().doorbell);
    if (progressed()) continue;
    if (deadline.expired()) {
      result = Status(Code::kTimeout, "the operation is not complete yet");
      break;
    }
    sleeper.sleep(Deadline::earlier(deadline, next_deadline()));
  }
  waiters_.fetch_sub(1, std::memory_order_acq_rel);
  if (needs_progress()) ProgressThread::instance().wake(shared_from_this());
  return operation.done() ? operation.status() : result;
}

void Communicator::leave() {
  if (deterministic_ != nullptr) deterministic_->finish();
  {
    const std::lock_guard lock(mutex_);
    if (left_) return;
    left_ = true;
  }
  waiters_.fetch_add(1, std::memory_order_acq_rel);
  while (pending_.load(std::memory_order_acquire)) {
    const Sleeper sleeper(board().doorbell);
    const bool any = [this] {
      const std::lock_guard lock(mutex_);
      return progress_locked();
    }();
    if (!any && pending_.load(std::memory_order_acquire)) sleeper.sleep(next_deadline());
  }
  waiters_.fetch_sub(1, std::memory_order_acq_rel);
  // Ranks of this node may see at once that this one has left. But not where the daemon is still to tell them
  // of a failure: they would take the departure for the cause. It reads that notice before this one, and then
  // marks the departure itself.
  if (!told_daemon_.load(std::memory_order_acquire)) {
    board().left.store(1, std::memory_order_release);
    access_.ring_peers();
  }
  // What this rank has sent to other nodes is for a daemon to carry, which gets the group's memory from its
  // members.
  if (!access_.one_node() && session_->daemon().host_pid != 0 && !access_.segment.failed())
    session_->await_daemon();
  session_->unwatch(watch_);  // a daemon that is started again finds in the group's memory who has left
  Allocations::instance().forget_group(session_, joined_.handle);
  (void)session_->notify(Kind::kLeave, {joined_.handle, Code::kSuccess, -1, ""});
}

Status Communicator::give_up(const Status& why) {
  const Status told(why.code(), "rank " + std::to_string(options_.rank) + ": " + why.message());
  fail(told.code(), static_cast<int32_t>(options_.rank), told.message());
  return told;
}

Status Communicator::abort() {
  // The channel first: a rank that saw the group fail before would leave the channel, and be taken for lost
  // there.
  if (deterministic_ != nullptr) deterministic_->abort();
  fail(Code::kAborted, static_cast<int32_t>(options_.rank),
       "rank " + std::to_string(options_.rank) + " aborted the group (class " + options_.group_class + ")");
  return Status::ok();
}

}  // namespace hdt::client
