// What an engine ends when something fails, mostly for want of memory: with a connection its link, or
// the connection alone; with a group that group. The other links and groups go on (base/contained.h).
//
// The end itself must need no memory, or must be repeated until there is some. So texts are short where
// they are needed, containers have reserved room (add_peer(), make_group()), and on_time() of a group
// sends later what could not be sent.
#include <algorithm>

#include "base/contained.h"
#include "daemon/engine/engine.h"

namespace hdt::daemon {

using transport::Completion;
using transport::Connection;

namespace {

// give_up() of a group: the first pause before it is looked at again, and how often that pause doubles
// (up to about a second).
constexpr int64_t kAgainMs = 1;
constexpr int kMostDoublings = 10;

}  // namespace

void Engine::contain_completion(size_t device, const Completion& completion) {
  Connection* const connection = completion.connection;
  const bool closed = completion.kind == Completion::Kind::kClosed;
  const auto known = rails_.find(connection);
  // Noted now, because on_completion() erases the entry of a connection that has closed.
  PeerLink* const of_closed = known == rails_.end() || !closed ? nullptr : known->second.peer;
  (void)contained(
      "a data connection", [&] { on_completion(device, completion); },
      [&](const std::string& why) {
        // Which link is broken: that of a closed connection, or that of a rail. A connection in its
        // handshake is only closed, and dialled again then; after its end nothing of it is left to do.
        const auto rail = rails_.find(connection);
        PeerLink* const peer = closed                                                     ? of_closed
                               : rail == rails_.end() || rail->second.greeting != nullptr ? nullptr
                                                                                          : rail->second.peer;
        rails_.erase(closed ? connection : nullptr);
        if (!closed) connection->close();
        if (peer != nullptr) break_link(*peer, why);
        // Nobody refers to the connection any more: its link is out of use.
        if (closed) devices_[device]->release(connection);
      });
}

// Ends a link whose state may be half written, without asking it for anything. The peer gets no goodbye:
// a goodbye is what a daemon sends that ends, and the peer would wait for its successor. The peer learns
// of the end from a new link in the place of this one; the end that dials makes that, be it this node or
// the peer.
void Engine::break_link(PeerLink& peer, const std::string& why) {
  const auto known = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const auto& entry) { return entry.second.get() == &peer; });
  if (known == peers_.end()) return;
  // abandon() sends nothing, and the kClosed of these connections finds no link any more.
  for (auto& [connection, rail] : rails_) {
    if (rail.peer == &peer && rail.greeting == nullptr) connection->abandon();
  }
  Status reason(Code::kInternal, "no memory");  // short: takes no memory
  (void)contained("the end of a link", [&] {
    reason = {Code::kInternal,
              "the daemon of node " + options_.node_name + " could not go on with it: " + why};
  });
  // A link that has never been up, or whose peer is gone, needs no successor.
  const bool was_up = peer.announced && !peer.gone;
  auto paths = std::move(peer.paths);
  forget_peer(peer, reason);
  if (!was_up || paths.empty()) return;
  (void)contained("a link in the place of a broken one", [&] {
    // `peer` still exists: it is in retired_.
    say_broken(peer.id, peer.name, peer.backend, peer.group_class, std::move(paths));
  });
}

void Engine::say_broken(const LinkId& id, const std::string& name, uint32_t backend,
                        const std::string& group_class, std::vector<RailPath> paths) {
  // The paths are dialled from the beginning.
  for (RailPath& path : paths) {
    path.connection = nullptr;
    path.answered = path.up = false;
    path.dial_at = Deadline::never();
  }
  PeerLink& again = add_peer(id, name, backend, group_class);
  // Superseded from the start: no group takes it, and it ends when both ends have nothing for it to do.
  // It has the LinkId of the broken one, so its first rail comes to the peer's end of that. The hello
  // there holds another number (transports/link/notice.h), by which the peer's end knows that it is over.
  again.superseded = again.replaces = true;
  again.first_dial_ms = options_.connect_ms;
  again.paths = std::move(paths);
  if (!dial(again)) peers_.erase(id);
}

// Links in which an exception has left a call. They are found here, as the call may have been for a
// group and that group alone was given up.
void Engine::break_torn_links() {
  const auto torn = [](const auto& entry) { return entry.second->link.torn(); };
  for (auto found = peers_.begin();
       (found = std::find_if(peers_.begin(), peers_.end(), torn)) != peers_.end();)
    break_link(*found->second, "no memory");
}

// Something for a group that is not here, or that the peer is not in. The peer got as far as this only
// with this node's hello, so the group was here: it has failed and the peer could not be informed, or
// both have left it. Only a hello and what comes with it may be early. One answer for a run of frames is
// enough.
void Engine::answer_stray(PeerLink& peer, uint64_t group) {
  if (peer.told_stray == group) return;
  (void)peer.link.send(encode(GroupUnknown{group}));
  peer.told_stray = group;
}

// The peer sends something for a group that has failed here, on a link that the group does not have: the
// link on which it would have been informed is lost, which the peer may not know yet.
void Engine::answer_failed(EngineGroup& group, uint32_t node, PeerLink& peer) {
  if (!group.context().failed() || group.connected(node) || peer.told_stray == group.id()) return;
  const Status failure = group.context().failure();
  (void)peer.link.send(
      encode(GroupFailed{group.id(), failure.code(), group.context().failed_rank(), failure.message()}));
  peer.told_stray = group.id();
}

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
  // What fails again and again must not fill the log.
  look_at_ = Deadline::after_ms(kAgainMs << std::min(times_given_up_++, kMostDoublings));
}

void EngineGroup::tell_not_made(const Status& why) {
  if (!on_ready_) return;
  // Nobody has joined, so no rank must depart before the group can end.
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
