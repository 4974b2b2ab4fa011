// dialer.cc: see dialer.h.
#include "daemon/links/dialer.h"

#include <algorithm>

#include "base/address.h"
#include "base/contained.h"
#include "base/log.h"
#include "daemon/links/link_table.h"
#include "transports/several_connections.h"

namespace hdt::daemon {

using transport::Connection;

namespace {

// The limit in ms of an attempt to get a rail back. It is short, since the next attempt may find the
// path free.
constexpr int64_t kRedialMs = 500;
// How often, in ms, the end that does not dial asks the other one.
constexpr int64_t kAskEveryMs = 500;
// If a network makes no connection within this time in ms, it is taken for dead, and other NICs are
// tried as well.
constexpr int64_t kSparesAfterMs = 1'000;

// Spares are paths between NICs that the pairing did not choose; they are tried when the chosen ones do not
// work.
bool has_spares(const PeerLink& peer) {
  return std::any_of(peer.paths.begin(), peer.paths.end(), [](const RailPath& path) { return path.spare; });
}

}  // namespace

// `last`: no other candidate is left, so the dial may take its full time.
PeerLink* Dialer::dial_candidate(const NodeInfo& node, const std::string& group_class,
                                 LinkCandidate& candidate, bool last) {
  // 1. The paths come before the link: a link without paths would never come up, nor end. A device that
  //    needs several connections for its speed gets as many paths (several_connections.h).
  // In the order of the pairs. path_of() and the number in the hello depend on the places in it, so it
  // does not change while the link lives.
  std::vector<RailPath> paths;
  const auto add = [&](const LinkCandidate::Pair& pair, bool spare) {
    const auto* several = dynamic_cast<const transport::SeveralConnections*>(&devices_.at(pair.device));
    const size_t connections = several == nullptr || spare ? 1 : several->connections();
    for (size_t i = 0; i < connections; ++i) {
      RailPath& path = paths.emplace_back();
      path.pair = pair;
      path.spare = spare;
    }
  };
  for (const auto& pair : candidate.pairs) add(pair, false);
  for (const auto& pair : candidate.spares) add(pair, true);
  // 2. The link, and the dials.
  PeerLink& peer = links_.add({node.id, next_link_++}, node.name,
                              devices_.backend_of(candidate.pairs.front().device), group_class);
  peer.first_dial_ms = last ? settings_.connect_ms : std::min(settings_.connect_ms, kTryMs);
  peer.paths = std::move(paths);
  if (dial(peer)) return &peer;
  (void)contained("why a node is not reached", [&] { candidate.failure = peer.failures(); });
  links_.discard(peer.id);
  return nullptr;
}

// Dials every path once. False: no path can even be tried, and the paths say why.
bool Dialer::dial(PeerLink& peer) {
  for (RailPath& path : peer.paths) {
    if (!path.spare) dial_path(peer, path);
  }
  if (has_spares(peer)) peer.spares_at = Deadline::after_ms(kSparesAfterMs);
  if (!peer.dialing()) dial_spares(peer);
  return peer.dialing();
}

// Spares that are being dialled, or that wait for their time after a failure, are left alone.
void Dialer::dial_spares(PeerLink& peer) {
  peer.spares_at = Deadline::never();
  if (peer.link.up()) return;  // spares are not needed
  for (RailPath& path : peer.paths) {
    if (path.spare && path.connection == nullptr && path.dial_at.is_never()) dial_path(peer, path);
  }
}

// An exception counts as a failed attempt: the path gets its next time, and the other paths are not
// affected.
void Dialer::dial_path(PeerLink& peer, RailPath& path) {
  path.dial_at = Deadline::never();
  if (contained("a dial of a node", [&] { begin_path(peer, path); })) return;
  path.failure = "no memory";  // short: takes no memory
  path.schedule(now_ns());
  if (!peer.announced) path.dial_at = Deadline::never();
}

// The handshake begins when the connection is made (on_completion()). Its limit is that of the dial, as the
// peer's kernel may accept for a daemon that does not answer.
void Dialer::begin_path(PeerLink& peer, RailPath& path) {
  // Before the link is up, a dial may take long only if no other candidate is left (dial_candidate()).
  const int64_t limit_ms = peer.announced ? std::min(kRedialMs, settings_.connect_ms) : peer.first_dial_ms;
  const size_t device = path.pair.device;
  // The number tells the peer which of this end's paths it is (PeerHello::rail).
  const auto number = static_cast<uint32_t>(&path - peer.paths.data());
  const PeerHello own{Purpose::kRail, settings_.node, settings_.node_name, settings_.index,
                      peer.id.number, number,         peer.group_class};
  LinkTable::Rail rail{
      &peer, device,
      std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kDialer, own, settings_.trust),
                                          Deadline::after_ms(limit_ms), peer.id.node}),
      LinkTable::Rail::Origin::kDialled};
  auto connection = devices_.at(device).connect(path.pair.theirs.address, limit_ms);
  if (!connection.is_ok()) {
    path.failure = connection.status().message();
    path.schedule(now_ns());
    // Before the link is up each path is tried once.
    if (!peer.announced) path.dial_at = Deadline::never();
    return;
  }
  // If there is no memory to keep it, the connection is closed at its first event (on_completion()).
  links_.enter(connection.value(), std::move(rail));
  path.connection = connection.value();
}

// Connects to where the peer's rails came from, and says in the handshake that this end has no rail left
// (Purpose::kNoRail). A peer that lives gives up its rails, which are dead as well, and dials. If nobody
// or another daemon answers, the peer's daemon has ended (on_connection_lost()).
void Dialer::ask(PeerLink& peer) {
  peer.ask_at = Deadline::never();
  if (peer.link.up() || peer.ends.empty()) return;
  // An end from which no rail has come may be somebody else's address, whose refusal says nothing.
  for (const auto& [device, host] : peer.came_from) {
    const auto end = std::find_if(peer.ends.begin(), peer.ends.end(), [&, from = host](const RailEnd& other) {
      return other.backend == devices_.backend_name(peer.backend) && host_of(other.address) == from;
    });
    if (end == peer.ends.end()) continue;
    auto connection = devices_.at(device).connect(end->address, kAskEveryMs);
    if (!connection.is_ok()) continue;
    const PeerHello own{Purpose::kNoRail, settings_.node, settings_.node_name,
                        settings_.index,  peer.id.number, 0,
                        peer.group_class};
    const auto keep = [&, through = device] {
      links_.enter(
          connection.value(),
          {&peer, through,
           std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kDialer, own, settings_.trust),
                                               Deadline::after_ms(kAskEveryMs), peer.id.node}),
           LinkTable::Rail::Origin::kAsking});
    };
    if (!contained("a question to a node", keep)) connection.value()->abandon();
  }
  peer.ask_at = Deadline::after_ms(kAskEveryMs);
}

// A connection that this end has dialled has ended: before it was a rail, or after. Decides whether the
// peer's daemon has ended, when the path is dialled again, and whether the whole link has failed.
void Dialer::on_connection_lost(PeerLink& peer, const Connection& connection, bool asked, const Status& why,
                                bool elsewhere) {
  RailPath* path = peer.path_of(connection);
  const bool refused = why.code() == Code::kNoDaemon;
  const bool was_there = asked || (path != nullptr && path->proven);
  // 1. Nobody or another daemon listens where the peer did, and no rail is left: the peer's daemon has
  //    ended. A path on which the peer has never been says nothing about it.
  if ((refused || elsewhere) && was_there && peer.announced && !peer.link.up()) {
    peer.daemon_ended = true;
    return peer.link.close({Code::kLink, elsewhere
                                             ? "another daemon listens where it did"
                                             : "its daemon does not listen any more: " + why.message()});
  }
  if (path == nullptr) return;
  // 2. Why, in words. A refusal at an address that this host has itself comes from this host.
  Status reason = why;
  if (refused && !path->proven) {
    const auto own = transport::OwnAddresses::now();
    if (own.is_ok() && own.value().has(host_of(path->pair.theirs.address)))
      reason = {Code::kLink, "this host has that address itself, and nobody listens there"};
  }
  // 3. When it is dialled again. A condemned path leads to somebody else or to nobody, and is not
  //    dialled as if it were about to work. A spare path that was closed as needless has not failed.
  const bool needless = peer.is_needless(*path);
  const bool condemned = elsewhere || (refused && !path->proven);
  const bool is_news = !needless && !path->proven && path->failure.empty();
  if (!needless) path->failure = reason.message();
  path->schedule(now_ns(), condemned);
  // Only the first failure of a path is logged, as paths are dialled for ever.
  if (is_news) {
    HDT_LOG_WARN("rail to node {} over {} not made: {}: {} {}", peer.name,
                 devices_.backend_name(peer.backend), path->pair.describe(), reason.message(),
                 LogTag{.node = settings_.node_name});
  }
  if (peer.announced) return;
  path->dial_at = Deadline::never();  // each is tried once, until one leads there
  // 4. The link is not up yet: try spares when all other paths have failed, and fail with the last path.
  const bool others = std::any_of(peer.paths.begin(), peer.paths.end(), [](const RailPath& other) {
    return !other.spare && other.connection != nullptr;
  });
  if (!others && !peer.spares_at.is_never()) dial_spares(peer);
  if (!peer.dialing()) links_.forget(peer, {Code::kLink, peer.failures()});
}

// The end that does not dial asks at once; the one that does will try spares soon.
void Dialer::on_last_rail_lost(PeerLink& peer) const {
  if (peer.paths.empty()) peer.ask_at = Deadline::after_ms(0);
  if (has_spares(peer)) peer.spares_at = Deadline::after_ms(kSparesAfterMs);
}

// The kernel's news are a hint: the path is dialled at once, and its delays go on from where they were if
// that fails.
void Dialer::on_nic_up(const std::string& nic) const {
  for (const auto& [id, peer] : links_.all()) {
    for (RailPath& path : peer->paths) {
      if (devices_.nics()[path.pair.device].info.name != nic || path.connection != nullptr ||
          !peer->announced)
        continue;
      // A flapping path stays held back, and a spare one is not needed.
      if (path.held_back_ns == 0 && (!path.spare || path.proven)) path.dial_at = Deadline::after_ms(0);
    }
  }
}

// Each path has a time of its own; one that is dialled or is a rail has none.
void Dialer::on_time(PeerLink& peer) {
  if (peer.spares_at.expired()) dial_spares(peer);
  for (RailPath& path : peer.paths) {
    if (!path.dial_at.expired()) continue;
    // A spare path that has never carried a rail is not dialled while others do.
    if (path.spare && !path.proven && peer.link.up()) {
      path.dial_at = Deadline::never();
    } else {
      dial_path(peer, path);
    }
  }
  if (peer.ask_at.expired()) ask(peer);
}

}  // namespace hdt::daemon
