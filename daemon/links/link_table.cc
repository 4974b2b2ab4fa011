// link_table.cc: connections up to the link that they belong to, and what links report. link_ends.cc has the
// ends of links.
#include "daemon/links/link_table.h"

#include <algorithm>

#include "base/address.h"
#include "base/contained.h"
#include "base/log.h"
#include "daemon/links/nics.h"
#include "daemon/links/own_host.h"
#include "daemon/protocol/channel_binding.h"
#include "transports/tried_path.h"

namespace hdt::daemon {

using transport::Completion;
using transport::Connection;
using transport::Link;
using transport::RailStatus;

namespace {

// Whether the paths of a link are those of the candidate: each pair has one path or several, in the same
// order, and spares come last.
bool same_pairs(const LinkCandidate& candidate, const std::vector<RailPath>& paths) {
  auto path = paths.begin();
  std::vector<LinkCandidate::Pair> pairs = candidate.pairs;
  pairs.insert(pairs.end(), candidate.spares.begin(), candidate.spares.end());
  for (const LinkCandidate::Pair& pair : pairs) {
    const auto other = [&](const RailPath& p) {
      return p.pair.device != pair.device || p.pair.theirs.address != pair.theirs.address;
    };
    const auto end = std::find_if(path, paths.end(), other);
    if (end == path) return false;
    path = end;
  }
  return path == paths.end();
}

}  // namespace

// A pointer is good until the next call that can end a link. Whoever keeps more keeps the id.
PeerLink* LinkTable::find(const LinkId& id) const {
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second.get();
}

// Also by links that are closing: as long as one of them is there, writes of the node may still arrive.
bool LinkTable::leads_to(const NodeId& node) const {
  return std::any_of(links_.begin(), links_.end(),
                     [&](const auto& entry) { return entry.first.node == node; });
}

// Groups of a class whose candidates are the same share a link. A draining link is about to end, and
// the two ends could not agree to use it again.
PeerLink* LinkTable::over(const NodeId& node, const std::string& group_class,
                          const LinkCandidate& candidate) const {
  for (auto& [id, peer] : links_) {
    if (id.node == node && !peer->draining && (peer->announced || peer->dialing()) &&
        peer->group_class == group_class && devices_.backend_name(peer->backend) == candidate.backend &&
        same_pairs(candidate, peer->paths)) {
      return peer.get();
    }
  }
  return nullptr;
}

// Reserves first, so that the end of this link can be recorded without memory.
PeerLink& LinkTable::add(const LinkId& id, const std::string& name, uint32_t backend,
                         const std::string& group_class) {
  auto peer = std::make_unique<PeerLink>(id, name, backend, group_class, *this, settings_.link);
  ended_.reserve(ended_.size() + links_.size() + 1);  // so that forget() needs no memory
  auto& kept = links_[id];
  kept = std::move(peer);
  return *kept;
}

// Lanes of links ask their NIC each time, so nothing has to be changed in the links.
void LinkTable::set_policies(PolicyOfClass policy_of) {
  shares_.set_policies(std::move(policy_of));
  for (const auto& [id, peer] : links_) shares_.set_policy(peer->group_class);
}

// A device that throws is asked again in the next round; the other devices are asked in this one.
bool LinkTable::poll() {
  bool any = false;
  for (size_t device = 0; device < devices_.count(); ++device) {
    completions_.clear();
    (void)contained("a device", [&] { any |= devices_.at(device).poll(completions_); });
    for (const auto& completion : completions_) contain_completion(device, completion);
  }
  return any;
}

// An event of a connection. contain_completion() handles exceptions.
void LinkTable::on_completion(size_t device, const Completion& completion) {
  Connection& connection = *completion.connection;
  // A peer has connected. It has `connect_ms` to finish its handshake.
  if (completion.kind == Completion::Kind::kAccepted) {
    const PeerHello own{Purpose::kRail, settings_.node, settings_.node_name, settings_.index, 0, 0, ""};
    rails_[&connection] = {
        nullptr, device,
        std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kAcceptor, own, settings_.trust),
                                            Deadline::after_ms(settings_.connect_ms), NodeId{}}),
        Rail::Origin::kAccepted};
    return;
  }
  const auto found = rails_.find(&connection);
  if (found == rails_.end()) {  // there was no memory for its entry
    if (completion.kind == Completion::Kind::kClosed) {
      devices_.at(device).release(&connection);
    } else {
      connection.close();
    }
    return;
  }
  Rail& rail = found->second;
  if (rail.greeting == nullptr) {  // a rail: everything is for its link, also its end
    if (rail.peer != nullptr) rail.peer->link.on_completion(completion);
  } else if (completion.kind == Completion::Kind::kConnected) {
    // Dialled and connected: this end begins the handshake. The handshake is bound to the protected
    // connection, if the backend has one, so that nobody can pass it on.
    bind_to_channel(rail.greeting->handshake, connection);
    for (const auto& message : rail.greeting->handshake.start()) (void)connection.send(message, 0);
  } else if (completion.kind == Completion::Kind::kMessage) {
    on_greeting(rail, connection, completion.message);
  } else if (completion.kind == Completion::Kind::kReady) {
    adopt(rail, connection);
  }
  // The end of the connection: note why, and let the path be dialled again.
  if (completion.kind != Completion::Kind::kClosed) return;
  PeerLink* peer = rail.peer;
  const Rail::Origin origin = rail.origin;
  const std::string refused = rail.greeting != nullptr ? rail.greeting->refused : "";
  const bool elsewhere = rail.greeting != nullptr && rail.greeting->elsewhere;
  rails_.erase(found);
  const Status why = !refused.empty()           ? Status(Code::kLink, refused)
                     : completion.error.is_ok() ? Status(Code::kLink, "it closed the connection")
                                                : completion.error;
  // For a connection without a link only limits of this host are reported: strangers may close as they
  // like.
  if (peer == nullptr && completion.error.code() == Code::kSystem)
    stranger_log_.say("connection " + connection.remote_address() + " closed", completion.error.message(),
                      settings_.node_name);
  if (peer != nullptr && origin != Rail::Origin::kAccepted)
    dialer_.on_connection_lost(*peer, connection, origin == Rail::Origin::kAsking, why, elsewhere);
  devices_.at(device).release(&connection);
}

// In the log only if the peer is a stranger. If this end has dialled, on_connection_lost() reports the
// reason.
void LinkTable::refuse(Rail& rail, Connection& connection, const std::string& why) {
  if (rail.peer == nullptr) {
    stranger_log_.say("connection " + connection.remote_address() + " refused", why, settings_.node_name);
  }
  rail.greeting->refused = why;
  connection.close();
}

// A message of the handshake. The checks come in this order: process, node, path, purpose.
void LinkTable::on_greeting(Rail& rail, Connection& connection, std::span<const std::byte> message) {
  Handshake& handshake = rail.greeting->handshake;
  const auto refuse = [&](const std::string& why) { this->refuse(rail, connection, why); };
  // 1. Without a cluster key the process at the other end must be root's or this user's, if it is on
  //    this host. Connections of rdma are no TCP sockets, so the kernel does not know whose they are
  //    (SECURITY.md).
  const bool has_owner = devices_.backend_name(devices_.backend_of(rail.device)) != "rdma";
  if (has_owner && settings_.trust->cluster_key().empty() && !handshake.introduced()) {
    const std::string foreign = foreign_peer(connection);
    if (!foreign.empty()) return refuse(foreign);
  }
  if (!handshake.introduced()) bind_to_channel(handshake, connection);
  auto answer = handshake.on_message(message);
  if (!answer.is_ok()) return refuse(answer.status().message());
  // 2. Dialler: the node must be the one that was meant. This is asked before anything is proved to it,
  //    so that the other end makes no link from a connection that was not meant for it.
  const bool introduced = handshake.done() || handshake.peer().node != NodeId{};
  if (rail.peer != nullptr && introduced && handshake.peer().node != rail.greeting->expected) {
    rail.greeting->elsewhere = true;
    return refuse(handshake.peer().node == settings_.node ? "this node answers there itself"
                  : handshake.peer().name == rail.peer->name
                      ? "another daemon of that name answers there"
                      : "node " + handshake.peer().name + " answers there");
  }
  // 3. Dialler: a spare path is given up if another path that has been answered makes it needless.
  if (RailPath* path = rail.peer == nullptr || !introduced ? nullptr : rail.peer->path_of(connection)) {
    if (!path->answered && rail.peer->is_needless(*path)) return refuse("another path leads there");
    path->answered = true;
  }
  // 4. A question (ask()) ends here: the peer's answer is all that was wanted. Nothing is proved to it,
  //    so that a rail that came meanwhile is not given up.
  const bool asks = rail.origin == Rail::Origin::kAsking;
  if (asks && (rail.peer == nullptr || rail.peer->link.up())) return connection.close();
  for (const auto& reply : answer.value()) (void)connection.send(reply, 0);
  if (asks || !handshake.done()) return;  // whoever was asked closes the connection
  // 5. Acceptor: the peer wants a rail of this engine, or says that it has none left.
  const PeerHello& peer = handshake.peer();
  if (peer.purpose == Purpose::kControl || peer.engine != settings_.index)
    return refuse("not meant for this engine");
  if (rail.peer == nullptr && peer.node == settings_.node) return refuse("this node has dialled itself");
  if (peer.purpose == Purpose::kNoRail) {
    redial(peer.node, peer.link);
    return connection.close();
  }
  // 6. The peer is proved. The backend lets it write from now on, and reports kReady.
  if (const Status admitted = connection.admit(writer(peer.node)); !admitted.is_ok())
    return refuse(admitted.message());
}

// The dialer chooses the link's number. A connection with a known number must be of the same backend and
// class, since region keys hold within one backend.
PeerLink* LinkTable::link_of(Rail& rail, Connection& connection) {
  const PeerHello& peer = rail.greeting->handshake.peer();
  const LinkId id{peer.node, peer.link};
  const auto known = links_.find(id);
  if (known == links_.end()) return &add(id, peer.name, devices_.backend_of(rail.device), peer.group_class);
  if (known->second->backend == devices_.backend_of(rail.device) &&
      known->second->group_class == peer.group_class)
    return known->second.get();
  refuse(rail, connection, "a link has one backend and one class");
  return nullptr;
}

// The peer has lost all rails of this link, and this end dials. So the rails are dead, although this end
// has not noticed.
void LinkTable::redial(const NodeId& node, uint32_t link) {
  const auto found = links_.find(LinkId{node, link});
  if (found == links_.end() || found->second->paths.empty()) return;
  found->second->link.drop_rails({Code::kLink, "the peer has no rail left"});
}

// The handshake is done and the connection ready: it becomes a rail of the link.
void LinkTable::adopt(Rail& rail, Connection& connection) {
  if (rail.peer == nullptr && rail.origin == Rail::Origin::kAccepted) rail.peer = link_of(rail, connection);
  if (rail.peer == nullptr) return;  // it is being closed
  rail.greeting.reset();
  PeerLink& peer = *rail.peer;
  peer.spares_at = Deadline::never();
  // A path that has carried a rail is known to lead to the peer. If the peer has dialled, its address is
  // noted, so that this end can ask there.
  if (RailPath* path = peer.path_of(connection)) {
    path->proven = true;
  } else if (peer.came_from.size() < kMostPaths) {
    peer.came_from.emplace(rail.device, host_of(connection.remote_address()));
  }
  peer.link.add_rail(&connection, shares_.lane(rail.device, peer.group_class));
  // Only the first rail of a link is news for groups.
  if (peer.announced) return;
  peer.announced = true;
  peer.up_since_ns = now_ns();
  // Paths that failed before are tried again from now on, except for spare ones.
  for (RailPath& path : peer.paths) {
    if (path.connection == nullptr && !path.spare) path.schedule(now_ns(), path.elsewhere);
  }
  user_.on_up(peer);
}

// Links that wait for one another each hand over one fragment in turn, until none may (nic_share.h). The
// NICs decide which class goes first. Among the links of one class each is the first once.
void LinkTable::give_turns() {
  if (!shares_.anyone_waits()) return;
  std::vector<PeerLink*> turns;
  for (auto& [id, peer] : links_) turns.push_back(peer.get());
  if (turns.empty()) return;
  std::rotate(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(first_turn_++ % turns.size()),
              turns.end());
  for (bool moved = true; std::exchange(moved, false);) {
    shares_.forget_wishes();
    for (const PeerLink* peer : turns) peer->link.wants_turn();
    for (PeerLink* peer : turns) moved |= peer->link.take_turn();
  }
}

// After the groups have written, since that carries most acknowledgements.
void LinkTable::flush() {
  for (auto& [id, peer] : links_) {
    (void)contained("acknowledgements of a link", [&link = peer->link] { link.flush(); });
  }
}

// Links whose time has come are collected first, because a link that ends leaves the table.
void LinkTable::run_timers() {
  for (auto& [connection, rail] : rails_) {
    if (rail.greeting == nullptr || !rail.greeting->until.expired()) continue;
    if (rail.greeting->refused.empty()) rail.greeting->refused = "no daemon of HDT answers there";
    connection->close();
  }
  std::vector<PeerLink*> due;
  for (auto& [id, peer] : links_) {
    if (peer->next_time().expired()) due.push_back(peer.get());
  }
  for (PeerLink* peer : due) {
    (void)contained(
        "the time of a link", [&] { look_at(*peer); },
        [&](const std::string& why) { break_link(*peer, why); });
  }
}

// The link may end inside on_time(); then the dialer must not touch it.
void LinkTable::look_at(PeerLink& peer) {
  peer.link.on_time();
  if (!peer.link.down()) dialer_.on_time(peer);  // else it was forgotten
}

// The handshakes of connections that belong to no link yet count as well.
Deadline LinkTable::next_time() const {
  Deadline next = Deadline::never();
  for (const auto& [connection, rail] : rails_) {
    if (rail.greeting != nullptr) next = Deadline::earlier(next, rail.greeting->until);
  }
  for (const auto& [id, peer] : links_) next = Deadline::earlier(next, peer->next_time());
  return next;
}

// Writes count, and not messages: what departed ranks have sent travels as writes.
bool LinkTable::idle() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second->link.pending_writes() == 0; });
}

// The kernel reports that a NIC has gone down or come back. Its rails are given up at once, since TCP
// would notice only by time-outs; when it is back its paths are dialled at once.
void LinkTable::hear_nics() {
  for (const NicWatch::Event& event : nic_watch_.events()) {
    if (event.up) {
      dialer_.on_nic_up(event.name);
      continue;
    }
    for (auto& [connection, rail] : rails_) {
      if (devices_.nics()[rail.device].info.name != event.name) continue;
      if (rail.greeting != nullptr) {
        connection->abandon();
      } else if (rail.peer != nullptr) {
        rail.peer->link.drop_rail(connection, {Code::kLink, "NIC " + event.name + " went down"});
      }
    }
  }
}

// The link belongs to an entry of links_: links report only while they are there.
PeerLink& LinkTable::peer_of(const Link& link) const {
  const auto found =
      std::find_if(links_.begin(), links_.end(), [&](const auto& p) { return &p.second->link == &link; });
  return *found->second;
}

// The peer's link has sent its hello on the connection: from here on the rail carries traffic.
void LinkTable::on_rail_up(Link& link, const Connection& connection, const RailStatus& status) {
  PeerLink& peer = peer_of(link);
  const Rail& rail = rails_.find(const_cast<Connection*>(&connection))->second;
  // With a rail nothing is to be asked, and spares are not needed.
  peer.ask_at = peer.spares_at = Deadline::never();
  if (RailPath* path = peer.path_of(connection)) {
    path->up = true;
    path->up_ns = now_ns();
    // A path that has come up begins anew with its delays.
    path->failures = 0;
    path->failure.clear();
  }
  HDT_LOG_INFO("rail to node {} {}: {} - {} on {} {}", peer.name, status.losses > 0 ? "back" : "up",
               status.local_address, status.remote_address, devices_.nics()[rail.device].info.name,
               LogTag{.node = settings_.node_name});
  if (peer.announced) user_.on_rails(peer);
  // tcp has found that large packets do not pass on this path (docs/design/transports.md).
  const auto* path = dynamic_cast<const transport::TriedPath*>(&connection);
  if (path == nullptr || path->narrowed().empty()) return;
  HDT_LOG_WARN("rail to node {} on {}: {} {}", peer.name, devices_.nics()[rail.device].info.name,
               path->narrowed(), LogTag{.node = settings_.node_name});
}

// The link has given a rail up, or ends. The connection's own end follows as kClosed, and only then the path
// is dialled again (on_connection_lost()).
void LinkTable::on_rail_down(Link& link, const Connection& connection, const RailStatus& status,
                             const std::string& lost) {
  PeerLink& peer = peer_of(link);
  const Rail& rail = rails_.find(const_cast<Connection*>(&connection))->second;
  const auto rails = link.rails();
  const auto left = std::ranges::count_if(rails, &RailStatus::up);
  if (left == 0) dialer_.on_last_rail_lost(peer);
  if (lost.empty()) return;  // the link ends
  HDT_LOG_AT(user_.is_used(peer) ? LogLevel::kWarn : LogLevel::kInfo,
             "rail to node {} lost: {} - {} on {}: {}; {} left {}", peer.name, status.local_address,
             status.remote_address, devices_.nics()[rail.device].info.name, lost, left,
             LogTag{.node = settings_.node_name});
  user_.on_rails(peer);
}

// The link's reports, with the peer in the place of the link; the engine knows what groups made of it.
void LinkTable::on_sent(Link& link, uint64_t token) { user_.on_sent(peer_of(link), token); }

// The link acknowledges the write only after this call, so whatever a successor of this daemon must know
// about it is in the journal before the peer forgets it.
void LinkTable::on_arrived(Link& link, const transport::LinkHeader& header, uint64_t bytes) {
  user_.on_arrived(peer_of(link), header, bytes);
}

// Messages of one link come in the order in which they were sent.
void LinkTable::on_message(Link& link, std::span<const std::byte> message) {
  user_.on_message(peer_of(link), message);
}

}  // namespace hdt::daemon
