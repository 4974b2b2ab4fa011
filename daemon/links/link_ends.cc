// link_ends.cc: the ends of links: in order, and when an exception has left one half written.
//
// The end itself must need no memory, or must be repeated until there is some. So texts are short where they
// are needed, and containers have reserved room (add()).
#include <algorithm>

#include "base/contained.h"
#include "base/log.h"
#include "daemon/links/link_table.h"

namespace hdt::daemon {

using transport::Completion;
using transport::Connection;
using transport::Link;

// All groups that use the link learn of its end, so they do not wait for its writes any more.
void LinkTable::forget(PeerLink& peer, const Status& why) {
  // 1. The link is asked for what is to be known of it before it is removed.
  const bool used = user_.is_used(peer);
  (void)contained("the end of a link", [&] {
    HDT_LOG_AT(used ? LogLevel::kWarn : LogLevel::kInfo, "link to node {} over {} down: {} {}", peer.name,
               devices_.backend_name(peer.backend), why.message(), LogTag{.node = settings_.node_name});
  });
  const LinkId id = peer.id;
  const bool daemon_ended = peer.daemon_ended || peer.link.peer_ended();
  const auto found = links_.find(id);
  // 2. Its Link is on the call stack, so it is destroyed at the end of the round. From here on nothing
  //    may be left out: an exception is the matter of one group each.
  ended_.push_back(std::move(found->second));
  links_.erase(found);
  // 3. Its connections. Those in a handshake are closed here; the link has closed its rails.
  for (auto& [connection, rail] : rails_) {
    if (rail.peer != &peer) continue;
    rail.peer = nullptr;
    if (rail.greeting != nullptr) connection->close();
  }
  // 4. The groups that use it, and whoever waits for it to come up.
  user_.on_down(peer, why, daemon_ended, !leads_to(id.node));
}

// An exception in an event of one connection ends that connection, or the link that it is a rail of, and no
// other.
void LinkTable::contain_completion(size_t device, const Completion& completion) {
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
        // The connection has no user left, as its link is out of use.
        if (closed) devices_.at(device).release(connection);
      });
}

// Ends a link whose state may be half written, without asking it for anything. The peer gets no goodbye:
// a goodbye is what a daemon sends that ends, and the peer would wait for its successor. The peer learns
// of the end from a new link in the place of this one; the end that dials makes that, be it this node or
// the peer.
void LinkTable::break_link(PeerLink& peer, const std::string& why) {
  const auto known = std::find_if(links_.begin(), links_.end(),
                                  [&](const auto& entry) { return entry.second.get() == &peer; });
  if (known == links_.end()) return;
  // abandon() sends nothing, and the kClosed of these connections finds no link any more.
  for (auto& [connection, rail] : rails_) {
    if (rail.peer == &peer && rail.greeting == nullptr) connection->abandon();
  }
  Status reason(Code::kInternal, "no memory");  // short: takes no memory
  (void)contained("the end of a link", [&] {
    reason = {Code::kInternal,
              "the daemon of node " + settings_.node_name + " could not go on with it: " + why};
  });
  // A link that has never been up, or whose peer's daemon has ended, needs no successor.
  const bool was_up = peer.announced && !peer.daemon_ended;
  auto paths = std::move(peer.paths);
  forget(peer, reason);
  if (!was_up || paths.empty()) return;
  (void)contained("a link in the place of a broken one", [&] {
    // `peer` still exists: it is in ended_.
    say_broken(peer.id, peer.name, peer.backend, peer.group_class, std::move(paths));
  });
}

// Needs memory and may throw, unlike the rest of a link's end: the caller contains it.
void LinkTable::say_broken(const LinkId& id, const std::string& name, uint32_t backend,
                           const std::string& group_class, std::vector<RailPath> paths) {
  // The paths are dialled from the beginning.
  for (RailPath& path : paths) {
    path.connection = nullptr;
    path.answered = path.up = false;
    path.dial_at = Deadline::never();
  }
  PeerLink& again = add(id, name, backend, group_class);
  // Draining from the start: no group takes it, and it ends when both ends have nothing for it to do.
  // It has the LinkId of the broken one, so its first rail comes to the peer's end of that. The hello
  // there holds another number (transports/link/notice.h), by which the peer's end knows that it is over.
  again.draining = again.replaces = true;
  again.first_dial_ms = settings_.connect_ms;
  again.paths = std::move(paths);
  if (!dialer_.dial(again)) links_.erase(id);
}

// Links in which an exception has left a call. They are found here, as the call may have been for a
// group and that group alone was given up.
void LinkTable::break_torn() {
  const auto torn = [](const auto& entry) { return entry.second->link.torn(); };
  for (auto found = links_.begin();
       (found = std::find_if(links_.begin(), links_.end(), torn)) != links_.end();)
    break_link(*found->second, "no memory");
}

// Collected first, as a link without rails is forgotten at once.
void LinkTable::close_all(const Status& why) {
  std::vector<PeerLink*> all;
  for (auto& [id, peer] : links_) all.push_back(peer.get());
  for (PeerLink* peer : all) peer->link.close(why);
}

// The link's last call. Its entry goes; the Link itself lives to the end of the round.
void LinkTable::on_down(Link& link, const Status& reason) { forget(peer_of(link), reason); }

}  // namespace hdt::daemon
