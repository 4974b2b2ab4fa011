// engine_group_failure.cc: the failure of a group after an exception, mostly for want of memory
// (base/contained.h). It must need no memory itself, or be repeated until there is some: on_time() sends
// later what could not be sent.
#include <algorithm>

#include "base/contained.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

namespace {

// give_up() of a group: the first pause before it is looked at again, and how often that pause doubles
// (up to about a second).
constexpr int64_t kAgainMs = 1;
constexpr int kMostDoublings = 10;

}  // namespace

// Fails the group after an exception. Nothing that is missing then may be in the way of the group's end:
// what cannot be sent now is sent by on_time(), or when the ranks depart.
void EngineGroup::give_up(const std::string& why) {
  const auto fail_by_name = [&] {
    fail(Code::kInternal, -1,
         "the daemon of node " + context_.nodes[context_.me].name + " could not go on with " +
             context_.name() + ": " + why);
  };
  if (!contained("the failure of a group", fail_by_name))
    (void)context_.set_failure(Code::kInternal, -1, "no memory");  // short: takes no memory
  // A failure that repeats must not fill the log.
  look_at_ = Deadline::after_ms(kAgainMs << std::min(times_given_up_++, kMostDoublings));
}

// Called for every failure; it does something only while the group is being made. From here on the ranks
// get the reason in the answer to their joins.
void EngineGroup::tell_not_made(const Status& why) {
  if (!on_ready_) return;
  // No rank has a seat yet, so the group may end without a departure.
  std::fill(local_departed_.begin(), local_departed_.end(), true);
  on_ready_(why);
  on_ready_ = nullptr;
}

// The node has no part in the group any more. If it or this node has departed, that is in order: the answer
// has crossed the last messages. The successor of a suspended daemon learns of the group in another way.
void EngineGroup::on_unknown(uint32_t node) {
  GroupPeer& peer = context_.peers[node];
  if (!peer.takes_part() || peer.suspended) return;
  peer.failed = true;
  if (!has_local_ranks()) return;
  fail(Code::kRankLost, static_cast<int32_t>(context_.order.rank_at[context_.order.first_position[node]]),
       about(node) + " has failed: its daemon has given the group up");
}

// A node that comes back never sends more than what can be under way.
void EngineGroup::flooded(uint32_t node) {
  fail(Code::kInternal, -1, "node " + context_.nodes[node].name + " floods " + context_.name());
}

// For a node whose link has just come up: the group may have failed, and its ranks may have departed, while
// there was none. Without NodeDeparted the node would keep its part of the group for ever. A suspended node
// gets it behind what is still to be sent again (tell_departures()).
void EngineGroup::tell_end(uint32_t node) {
  if (context_.failed()) {
    const Status failure = context_.failure();
    context_.send(node, GroupFailed{context_.id, failure.code(), context_.failed_rank(), failure.message()});
  }
  if (departure_sent_ && !context_.peers[node].suspended)
    context_.send(node, NodeDeparted{context_.id, context_.me});
}

// Once to each node that has a link. A node without one learns of the failure when it connects, or from the
// other nodes.
void EngineGroup::tell_failure() {
  if (!context_.failed() || told_failure_) return;
  const Status failure = context_.failure();
  context_.send_all(GroupFailed{context_.id, failure.code(), context_.failed_rank(), failure.message()});
  told_failure_ = true;
}

}  // namespace hdt::daemon
