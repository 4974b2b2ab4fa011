// communicator_end.cc: how a rank's part in a group ends: it leaves, gives up, abandons a call that it could
// not make, or aborts. See communicator.h.
#include "base/contained.h"
#include "libclient/daemon_client/allocations.h"
#include "libclient/group/communicator.h"
#include "libclient/group/deterministic_calls.h"
#include "libclient/group/ring_queue.h"

namespace hdt::client {

using ipc::Kind;

namespace {

// How long a daemon that does not pass a failure on is waited for, in ms.
constexpr int64_t kSilentMs = 4'000;

}  // namespace

// 1. The deterministic calls, which use their own group, come to their end.
// 2. From here on nothing can be submitted.
// 3. Wait until nothing is pending: every operation ends by itself or at its deadline.
// 4. Mark the departure where the other ranks of the node see it.
// 5. Hand over to the daemon what this rank has sent to other nodes and is not carried yet.
// 6. Leave the group at the daemon.
void Communicator::leave() {
  if (deterministic_ != nullptr) deterministic_->finish();
  {
    const std::lock_guard lock(mutex_);
    if (departed_) return;
    departed_ = true;
  }
  // This thread counts as a waiter, so the progress thread does not work on a communicator that goes
  // away.
  waiters_.fetch_add(1, std::memory_order_acq_rel);
  while (pending_.load(std::memory_order_acquire)) {
    const Sleeper sleeper(rank_state().doorbell);
    const bool any = [this] {
      const std::lock_guard lock(mutex_);
      return progress_locked();
    }();
    if (!any && pending_.load(std::memory_order_acquire)) sleeper.sleep(next_deadline());
  }
  waiters_.fetch_sub(1, std::memory_order_acq_rel);
  // Ranks of this node may see at once that this one has departed, unless the daemon is still to pass on
  // a failure that this rank has reported: ranks would take the departure for the cause. The daemon
  // reads that notice before the one of step 6, and then marks the departure itself.
  if (!told_daemon_.load(std::memory_order_acquire)) {
    rank_state().departed.store(1, std::memory_order_release);
    access_.ring_peers();
  }
  // An embedded daemon may have just ended. Its successor gets the group's memory from the ranks that
  // are members, so this one stays a member until there is a daemon.
  if (!access_.one_node() && session_->daemon().host_pid != 0 && !access_.segment.failed())
    session_->await_daemon();
  // From here on this rank is no member: a daemon that is started again finds in the group's memory that
  // it has departed.
  session_->unwatch(watch_);
  // Memory that was shared in this group is no longer shared with the seat's end.
  Allocations::instance().forget_group(session_, joined_.handle);
  (void)session_->notify(Kind::kLeave, {joined_.handle, Code::kSuccess, -1, ""});
}

// The ring of deterministic calls first: a rank that saw this group fail before would leave the ring, and
// would be taken for failed there.
void Communicator::fail_with(const Status& why) {
  if (deterministic_ != nullptr) deterministic_->fail(why);
  fail(why.code(), static_cast<int32_t>(options_.rank), why.message());
}

// The message names this rank, as the others read it.
Status Communicator::give_up(const Status& why) {
  Status named(why.code(), "rank " + std::to_string(options_.rank) + ": " + why.message());
  fail_with(named);
  return named;
}

// 1. Fail the group, with a text that needs no memory where there is none for a better one.
// 2. End the operations, without another look at their buffers: what the call had made for them, such as
//    a multiplied contribution, may be gone. After this nothing can be submitted.
// 3. Wait until the failure is there.
Status Communicator::abandon(const Status& why) noexcept {
  const Status brief(why.code(), "no memory");  // fits a string without an allocation
  Status told = brief;
  (void)contained(
      "the text of a failure", [&] { told = give_up(why); },
      [&](const std::string& /*why*/) { fail_with(brief); });
  if (deterministic_ != nullptr) deterministic_->drain();
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    const auto end_with = [this](const Status& status) {
      collectives_->fail_all(status);
      rings_.fail_all(status);
    };
    (void)contained(
        "the end of a call", [&] { end_with(told); }, [&](const std::string& /*why*/) { end_with(brief); });
    pending_.store(false, std::memory_order_release);
  }
  rank_state().doorbell.ring();
  const Deadline silent = Deadline::after_ms(kSilentMs);
  while (!access_.segment.failed() && !silent.expired()) {
    const Sleeper sleeper(rank_state().doorbell);
    if (!access_.segment.failed()) sleeper.sleep(silent);
  }
  // Only the first failure counts.
  access_.segment.fail(brief.code(), static_cast<int32_t>(options_.rank), brief.message());
  return told;
}

Status Communicator::abort() {
  fail_with({Code::kAborted, "rank " + std::to_string(options_.rank) + " aborted the group (class " +
                                 options_.group_class + ")"});
  return Status::ok();
}

}  // namespace hdt::client
