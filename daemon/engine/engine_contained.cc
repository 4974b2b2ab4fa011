// Of an engine and its groups: what fails with one connection ends its link, or the connection alone, and
// what fails with one group that group.
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
  const auto known = rails_.find(connection);
  PeerLink* const of_closed = known == rails_.end() || !closed ? nullptr : known->second.peer;
  (void)contained(
      "a data connection", [&] { on_completion(device, completion); },
      [&](const std::string& why) {
        // A connection that is being made is tried again when it has closed; what is left of one that has
        // closed is not.
        const auto rail = rails_.find(connection);
        PeerLink* const peer = closed                                                     ? of_closed
                               : rail == rails_.end() || rail->second.greeting != nullptr ? nullptr
                                                                                          : rail->second.peer;
        rails_.erase(closed ? connection : nullptr);
        if (!closed) connection->close();
        if (peer != nullptr) break_link(*peer, why);
        // Nobody names it any more: its link is out of use.
        if (closed) devices_[device]->release(connection);
      });
}

// The peer is not told in order, as a daemon does that ends: it would wait for a successor. It hears of it
// from a rail of a new link in the place of this one: who dials makes that, be it this node or the peer.
void Engine::break_link(PeerLink& peer, const std::string& why) {
  const auto known = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const auto& entry) { return entry.second.get() == &peer; });
  if (known == peers_.end()) return;
  for (auto& [connection, rail] : rails_) {
    if (rail.peer == &peer && rail.greeting == nullptr) connection->abandon();
  }
  Status reason(Code::kInternal, "no memory");  // short: takes none
  (void)contained("the end of a link", [&] {
    reason = {Code::kInternal,
              "the daemon of node " + options_.node_name + " could not go on with it: " + why};
  });
  const bool was_up = peer.announced && !peer.gone;
  auto paths = std::move(peer.paths);
  forget_peer(peer, reason);
  if (!was_up || paths.empty()) return;
  (void)contained("a link in the place of a broken one", [&] {
    say_broken(peer.id, peer.name, peer.backend, peer.group_class,
               std::move(paths));  // it is in retired_ still
  });
}

void Engine::say_broken(const LinkId& id, const std::string& name, uint32_t backend,
                        const std::string& group_class, std::vector<RailPath> paths) {
  for (RailPath& path : paths) {
    path.connection = nullptr;
    path.answered = path.up = false;
    path.dial_at = Deadline::never();
  }
  PeerLink& again = add_peer(id, name, backend, group_class);
  again.superseded = again.replaces = true;
  again.first_dial_ms = options_.connect_ms;
  again.paths = std::move(paths);
  if (!dial(again)) peers_.erase(id);
}

// Links in which something threw while they worked for a group, that may not be the one whose work is lost.
void Engine::break_torn_links() {
  const auto torn = [](const auto& entry) { return entry.second->link.torn(); };
  for (auto found = peers_.begin();
       (found = std::find_if(peers_.begin(), peers_.end(), torn)) != peers_.end();)
    break_link(*found->second, "no memory");
}

// A frame or note for a group that is not here, or that the peer is not in. Who has got so far with it has
// had this node's hello, so that the group was here: it has failed, and the peer could not be told, or both
// have left it. Only a hello, and what comes with it, may be early.
void Engine::answer_stray(PeerLink& peer, uint64_t group) {
  if (peer.told_stray == group) return;
  (void)peer.link.send(encode(GroupUnknown{group}));
  peer.told_stray = group;
}

// What the peer says of a group that has failed here comes on a link that the group has not: the one on which
// it would have been told so has been lost, which the peer may not know.
void Engine::answer_failed(EngineGroup& group, uint32_t node, PeerLink& peer) {
  if (!group.context().failed() || group.connected(node) || peer.told_stray == group.id()) return;
  const Status failure = group.context().failure();
  (void)peer.link.send(
      encode(GroupFailed{group.id(), failure.code(), group.context().failed_rank(), failure.message()}));
  peer.told_stray = group.id();
}

// Something threw. Nothing that is missing then may be in the way of the group's end: what cannot be said now
// is said by on_time(), and when its ranks leave.
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
