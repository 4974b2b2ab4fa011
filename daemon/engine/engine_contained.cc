// Of an engine and its groups: what fails with one connection ends its link, or the connection alone, and what fails with one
// group that group.
#include <algorithm>

#include "base/contained.h"
#include "daemon/engine/engine.h"

namespace hdt::daemon {

using transport::Completion;
using transport::Connection;

namespace {

// A group that has been given up is looked at again soon, and then less and less often.
constexpr int64_t kAgainMs = 1;
constexpr int kMostDoublings = 10;

}  // namespace

void Engine::contain_completion(size_t device, const Completion& completion) {
  Connection* const connection = completion.connection;
  const bool closed = completion.kind == Completion::Kind::kClosed;
  const auto rail = rails_.find(connection);
  // A connection that is being made is tried again when it has closed; what is left of one that has closed is not.
  PeerLink* const peer =
      rail == rails_.end() || (rail->second.greeting != nullptr && !closed) ? nullptr : rail->second.peer;
  (void)contained(
      "a data connection", [&] { on_completion(device, completion); },
      [&](const std::string& why) {
        rails_.erase(closed ? connection : nullptr);
        if (!closed) connection->close();
        if (peer != nullptr) break_link(*peer, why);
        // Nobody names it any more: its link is out of use.
        if (closed) devices_[device]->release(connection);
      });
}

void Engine::break_link(PeerLink& peer, const std::string& why) {
  for (auto& [connection, rail] : rails_) {
    if (rail.peer == &peer && rail.greeting == nullptr) connection->close();
  }
  if (peers_.contains(peer.id) && peers_.at(peer.id).get() == &peer)
    forget_peer(peer, {Code::kInternal, "the daemon could not go on with it: " + why});
}

// Something threw. Nothing that is missing then may be in the way of the group's end: what cannot be said now is said by
// on_time(), and when its ranks leave.
void EngineGroup::give_up(const std::string& why) {
  const auto fail_by_name = [&] {
    fail(Code::kInternal, -1,
         "the daemon of node " + context_.nodes[context_.me].name + " could not go on with " +
             context_.name() + ": " + why);
  };
  if (!contained("the failure of a group", fail_by_name))
    (void)context_.set_failure(Code::kInternal, -1, "no memory");  // short: takes none
  // What fails again and again must not fill the log.
  look_at_ = Deadline::after_ms(kAgainMs << std::min(times_given_up_++, kMostDoublings));
}

void EngineGroup::tell_not_made(const Status& why) {
  if (!on_ready_) return;
  // Nobody has joined: there is nobody to leave.
  std::fill(local_left_.begin(), local_left_.end(), true);
  on_ready_(why);
  on_ready_ = nullptr;
}

void EngineGroup::tell_failure() {
  if (!context_.failed() || told_failure_) return;
  const Status failure = context_.failure();
  context_.send_all(GroupFailed{context_.id, failure.code(), context_.failed_rank(), failure.message()});
  told_failure_ = true;
}

}  // namespace hdt::daemon
