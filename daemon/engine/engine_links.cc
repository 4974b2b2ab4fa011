// Connections of an engine up to the link that they belong to, and what links report.
//
// A connection goes through these states. Dialled or accepted, it has a `greeting`: first the handshake
// (handshake.h), whose messages on_greeting() handles; then the backend's own preparation after admit().
// At kReady adopt() makes it a rail of its link, and the greeting ends. From then on all its events go
// to the link. At kClosed it is released, and the end that dialled it dials again (engine_rails.cc).
//
// Frames and messages of links are passed to the group that they name. One that names no group here is
// early, late or foreign, and is handled without harm to the other groups of the link.
#include <algorithm>

#include "base/address.h"
#include "base/contained.h"
#include "base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/links/nics.h"
#include "daemon/links/own_host.h"
#include "daemon/protocol/channel_binding.h"

namespace hdt::daemon {

using transport::Completion;
using transport::Connection;
using transport::Link;

namespace {

// The limits of messages that are kept for groups that do not exist here yet: of one node, enough for
// the three messages of each group that is being made with it; and of all nodes.
constexpr ptrdiff_t kMaxEarlyOfNode = 1024;
constexpr size_t kMaxEarlyMessages = 16 * kMaxEarlyOfNode;
constexpr int64_t kSayStrayMs = 1'000;  // between two lines in the log
constexpr int64_t kEarlyMs = 60'000;    // how long an early message is kept

}  // namespace

// Gives the group its link to the node.
void Engine::tell_link_up(EngineGroup& group, uint32_t node, PeerLink& peer) {
  // 1. The node may write to the segment from here on; on_link_up() sends it the key.
  const auto key = group_key(group.id(), peer.backend, peer.id.node);
  if (!key.is_ok()) return group.fail(key.status().code(), -1, key.status().message());
  group.on_link_up(node, peer.link, key.value(), peer.backend);
  // 2. The link may have been measured for another group. Otherwise it is measured when its turn comes.
  if (peer.measured) group.on_link_measured(node, peer.rates());
  measure_next(group);
  // 3. Messages that came before the group had the link. They are taken out before they are delivered,
  //    since delivering one may change `early_`.
  std::vector<EngineMessage> mine;
  std::erase_if(early_, [&](const EarlyMessage& early) {
    if (early.from != peer.id || daemon::group_of(early.note) != group.id()) return false;
    mine.push_back(early.note);
    return true;
  });
  for (const EngineMessage& note : mine) group.on_message(node, note, peer.link);
}

// The end of a link that no group needs any more is no news for an operator. At the end of a job each
// daemon sees others go, some of them before their goodbyes have come.
bool Engine::is_used(const PeerLink& peer) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    const auto node = group != nullptr ? node_in(*group, peer) : std::nullopt;
    return node && group->uses(*node, peer.link) && group->needs(*node);
  });
}

// Removes a link that is down. All groups that use it learn of it, so they do not wait for its writes
// any more.
void Engine::forget_peer(PeerLink& peer, const Status& why) {
  // 1. What is to be known of it is asked before it is removed.
  const bool used = is_used(peer);
  (void)contained("the end of a link", [&] {
    HDT_LOG_AT(used ? LogLevel::kWarn : LogLevel::kInfo, "link to node {} over {} down: {} {}", peer.name,
               backends_[peer.backend].name, why.message(), LogTag{.node = options_.node_name});
  });
  const LinkId id = peer.id;
  const bool gone = peer.gone || peer.link.peer_ended();
  const auto found = peers_.find(id);
  // 2. Its Link is on the call stack, so it is destroyed at the end of the round. From here on nothing
  //    may be left out: an exception is the matter of one group each.
  retired_.push_back(std::move(found->second));
  peers_.erase(found);
  // 3. Its connections. Those in a handshake are closed here; the link has closed its rails.
  for (auto& [connection, rail] : rails_) {
    if (rail.peer != &peer) continue;
    rail.peer = nullptr;
    if (rail.greeting != nullptr) connection->close();
  }
  // 4. With the last link to the node, the node may not write to the probe memory any more.
  const bool last = std::none_of(peers_.begin(), peers_.end(),
                                 [&](const auto& other) { return other.first.node == id.node; });
  for (const OpenBackend& backend : backends_) {
    if (last && backend.probe_landing)
      devices_[backend.first_device]->revoke(*backend.probe_landing, writer(id.node));
  }
  // 5. The groups.
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    const auto node = node_in(*group, *retired_.back());
    if (!node) continue;
    // A group that waits for the peer to dial has no link yet. It learns from the end of the last link
    // to that node that the node is gone.
    const bool dialled = dials(options_.node, options_.node_name, id.node, retired_.back()->name);
    const bool waits = last && !group->connected(*node) && !dialled;
    if (!waits && !group->uses(*node, retired_.back()->link)) continue;
    contain(*group, [&, link = retired_.back().get()] {
      group->on_link_down(*node, link->link, why, gone);
      // Without a link the node may write to nothing of the group any more.
      if (!group->connected(*node)) withdraw(*group, id.node);
      if (group->is_away(*node)) stop_moving(*group, *node);
    });
    touch(group.get());
  }
  // 6. Whoever waits for this link to come up: class changes, and groups that are being connected.
  (void)contained("a move to a link", [&] { move_link_failed(id, why); });
  candidate_failed(id, why);
  // 7. Successors that wait until the last link to their predecessors is down.
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    for (uint32_t node = 0; node < group->context().nodes.size(); ++node) {
      if (!successors_.contains({group->id(), node})) continue;
      contain(*group, [&] { welcome(*group, node); });
    }
  }
}

// An event of a connection. contain_completion() handles exceptions.
void Engine::on_completion(size_t device, const Completion& completion) {
  Connection& connection = *completion.connection;
  // A peer has connected. It has `connect_ms` to finish its handshake.
  if (completion.kind == Completion::Kind::kAccepted) {
    const PeerHello own{Purpose::kRail, options_.node, options_.node_name, options_.index, 0, 0, ""};
    rails_[&connection] = {
        nullptr, device,
        std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kAcceptor, own, options_.trust),
                                            Deadline::after_ms(options_.connect_ms), NodeId{}}),
        Rail::Origin::kAccepted};
    return;
  }
  const auto found = rails_.find(&connection);
  if (found == rails_.end()) {  // there was no memory for its entry
    if (completion.kind == Completion::Kind::kClosed) {
      devices_[device]->release(&connection);
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
                      options_.node_name);
  if (peer != nullptr && origin != Rail::Origin::kAccepted)
    on_connection_lost(*peer, connection, origin, why, elsewhere);
  devices_[device]->release(&connection);
}

// In the log only if the peer is a stranger. If this end has dialled, on_connection_lost() reports the
// reason.
void Engine::refuse(Rail& rail, Connection& connection, const std::string& why) {
  if (rail.peer == nullptr) {
    stranger_log_.say("connection " + connection.remote_address() + " refused", why, options_.node_name);
  }
  rail.greeting->refused = why;
  connection.close();
}

// A message of the handshake. The checks come in this order: process, node, path, purpose.
void Engine::on_greeting(Rail& rail, Connection& connection, std::span<const std::byte> message) {
  Handshake& handshake = rail.greeting->handshake;
  const auto refuse = [&](const std::string& why) { this->refuse(rail, connection, why); };
  // 1. Without a cluster key the process at the other end must be root's or this user's, if it is on
  //    this host. Connections of rdma are no TCP sockets, so the kernel does not know whose they are
  //    (SECURITY.md).
  const bool has_owner = backends_[backend_of_[rail.device]].name != "rdma";
  if (has_owner && options_.trust->cluster_key().empty() && !handshake.introduced()) {
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
    return refuse(handshake.peer().node == options_.node ? "this node answers there itself"
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
  if (peer.purpose == Purpose::kControl || peer.engine != options_.index)
    return refuse("not meant for this engine");
  if (rail.peer == nullptr && peer.node == options_.node) return refuse("this node has dialled itself");
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
PeerLink* Engine::link_of(Rail& rail, Connection& connection) {
  const PeerHello& peer = rail.greeting->handshake.peer();
  const LinkId id{peer.node, peer.link};
  const auto known = peers_.find(id);
  if (known == peers_.end()) return &add_peer(id, peer.name, backend_of_[rail.device], peer.group_class);
  if (known->second->backend == backend_of_[rail.device] && known->second->group_class == peer.group_class)
    return known->second.get();
  refuse(rail, connection, "a link has one backend and one class");
  return nullptr;
}

// The peer has lost all rails of this link, and this end dials. So the rails are dead, although this end
// has not noticed.
void Engine::redial(const NodeId& node, uint32_t link) {
  const auto found = peers_.find(LinkId{node, link});
  if (found == peers_.end() || found->second->paths.empty()) return;
  found->second->link.drop_rails({Code::kLink, "the peer has no rail left"});
}

// The handshake is done and the connection ready: it becomes a rail of the link.
void Engine::adopt(Rail& rail, Connection& connection) {
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
  peer.link.add_rail(&connection, lane_on(rail.device, peer.group_class));
  // Only the first rail of a link is news for groups.
  if (peer.announced) return;
  peer.announced = true;
  peer.up_since_ns = now_ns();
  // Paths that failed before are tried again from now on, except for spare ones.
  for (RailPath& path : peer.paths) {
    if (path.connection == nullptr && !path.spare) path.schedule(now_ns(), path.elsewhere);
  }
  // The link is up: its measurement, changes that wait for it, and groups that wait for it. A group at
  // the end that does not dial waits for its hello on this link instead (on_message()).
  make_probe(peer);
  move_link_made(peer);
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    const auto index = node_in(*group, peer);
    if (!index || group->connected(*index)) continue;
    const auto choice = choices_.find({group->id(), *index});
    if (choice != choices_.end() && choice->second.dials && choice->second.link == peer.id)
      contain(*group, [&] { take_link(*group, *index, peer); });
  }
  // There is nothing to measure, or no way to.
  if (!peer.probe || !peer.probe->measuring()) finish_probe(peer);
}

// By the node id, which is another one after a restart. So a successor is in no group before meet().
std::optional<uint32_t> Engine::node_in(const EngineGroup& group, const PeerLink& peer) const {
  const auto& nodes = group.context().nodes;
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].id == peer.id.node) return node;
  }
  return std::nullopt;
}

void Engine::on_sent(Link& link, uint64_t token) {
  if (token == LinkProbe::kToken) return;
  const WriteToken sent = WriteToken::unpack(token);
  // The group exists, as it is not destroyed while one of its writes is under way. The node is in it, as
  // its id changes only when its last link is down (welcome()).
  EngineGroup* group = groups_[sent.group_index].get();
  contain(*group, [&] { group->on_sent(*node_in(*group, peer_of(link)), link, sent); });
  touch(group);
}

// A write of the peer has landed in this node's memory. The link acknowledges it only after this call, so
// whatever a successor of this daemon must know about it is in the journal before the peer forgets it.
void Engine::on_arrived(Link& link, const transport::LinkHeader& header, uint64_t bytes) {
  const Frame frame = decode_frame(header);
  if (std::holds_alternative<ProbeFrame>(frame)) {
    if (PeerLink& from = peer_of(link); from.probe) from.probe->on_burst();
    return;
  }
  const uint64_t id = std::visit(
      [](const auto& f) -> uint64_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(f)>, std::monostate>)
          return 0;
        else
          return f.group;
      },
      frame);
  PeerLink& peer = peer_of(link);
  // A peer that sends malformed frames does not speak this protocol, so its link ends.
  if (std::holds_alternative<std::monostate>(frame)) {
    link.close({Code::kInvalidArgument, "node " + peer.name + " sent a malformed frame"});
    return;
  }
  EngineGroup* group = group_of(id);
  const auto node = group != nullptr ? node_in(*group, peer) : std::nullopt;
  // The other groups of the link have nothing to do with it.
  if (!node) return drop_stray(peer, id);
  contain(*group, [&] { group->on_frame(*node, frame, bytes); });
  answer_failed(*group, *node, peer);
  touch(group);
}

// A frame for a group that is not here (any more), or that the peer is not in. Logged once a second at
// most.
void Engine::drop_stray(PeerLink& peer, uint64_t group) {
  answer_stray(peer, group);
  ++stray_frames_;
  if (!stray_again_.expired() && !stray_again_.is_never()) return;
  stray_again_ = Deadline::after_ms(kSayStrayMs);
  HDT_LOG_WARN("node {} writes to group {}, which it is not in here; {} such frames have been dropped {}",
               peer.name, short_id(group), stray_frames_, LogTag{.node = options_.node_name});
}

// Keeps a message for a group that is not here yet. The limit is for each node, so that one node's
// messages do not take the place of another's.
void Engine::keep_early(const PeerLink& peer, const EngineMessage& note) {
  const auto of_node = std::count_if(early_.begin(), early_.end(), [&](const EarlyMessage& early) {
    return early.from.node == peer.id.node;
  });
  if (of_node >= kMaxEarlyOfNode || early_.size() >= kMaxEarlyMessages) return;
  early_.push_back({peer.id, note, Deadline::after_ms(kEarlyMs)});
}

// A control message of the peer. Messages of a link come in order, but a group may be using two links, and
// frames are in no order with messages. So each message stands for itself (wire.h).
void Engine::on_message(Link& link, std::span<const std::byte> message) {
  const EngineMessage note = decode_engine_message(message);
  PeerLink& peer = peer_of(link);
  if (std::holds_alternative<std::monostate>(note)) {
    link.close({Code::kInvalidArgument, "node " + peer.name + " sent a malformed note"});
    return;
  }
  if (const auto* probe = std::get_if<ProbeMessage>(&note)) return on_probe_note(peer, *probe);
  if (std::holds_alternative<LinkUnused>(note)) {
    peer.unused_there = true;
    return;
  }
  // 1. The group is not here. A hello, a failure or measurements may be early; everything else is late.
  EngineGroup* group = group_of(daemon::group_of(note));
  if (group == nullptr) {
    const bool keep = std::holds_alternative<GroupHello>(note) || std::holds_alternative<GroupFailed>(note) ||
                      std::holds_alternative<RatesMessage>(note);
    const bool known = std::holds_alternative<GroupUnknown>(note);  // the group is gone at both ends
    if (known) return;
    if (!keep || has_ended(daemon::group_of(note))) return answer_stray(peer, daemon::group_of(note));
    keep_early(peer, note);
    return;
  }
  const auto node = node_in(*group, peer);
  // 2. The node is not in the group under this id: a successor, or one that this successor has not met
  //    yet.
  if (!node && group->anyone_away() && std::holds_alternative<GroupHello>(note)) keep_early(peer, note);
  if (node) {
    const bool they_dial = !dials(options_.node, options_.node_name, peer.id.node, peer.name);
    // 3. The peer dials, so the link on which it sends its hello is its choice. A hello on another link
    //    than the one in use moves the group there (a class change).
    if (std::holds_alternative<GroupHello>(note) && !group->connected(*node) && they_dial) {
      contain(*group, [&] { take_link(*group, *node, peer); });
    }
    const auto* hello = std::get_if<GroupHello>(&note);
    if (hello != nullptr && group->connected(*node) && !group->uses(*node, link) && they_dial) {
      contain(*group, [&] { follow(*group, *node, peer, hello->region); });
    }
    // 4. In any case the group gets the message.
    contain(*group, [&] {
      on_change_note(*group, *node, note);
      group->on_message(*node, note, link);
      if (hello != nullptr) check_move(*group);
    });
    answer_failed(*group, *node, peer);
    touch(group);
  }
}

// The link's last call. Its entry goes; the Link itself lives to the end of the round.
void Engine::on_down(Link& link, const Status& reason) {
  PeerLink& peer = peer_of(link);
  // Writes of this link are not reported any more, so its groups must not wait for them.
  forget_peer(peer, reason);
}

}  // namespace hdt::daemon
