// Rails of an engine: dialling them, again whenever they are lost, and giving them up when their NIC
// goes down.
//
// The end that dials has a list of paths (RailPath), each a NIC of this node and an address of the
// other. A path is idle until `dial_at`, then has a connection, which becomes a rail or fails; either
// way it is idle again afterwards (RailPath::schedule()). Until the link has its first rail each path is
// tried once, and the link fails when all have failed. From then on paths are dialled for ever, at
// intervals.
//
// Spare paths are dialled only if no other path leads to the peer: at once if all others have failed,
// otherwise kSparesAfterMs after the dial or after the last rail was lost.
//
// The end that does not dial can only ask whether the peer's daemon still lives (ask()), when it has no
// rail.
#include <algorithm>

#include "base/address.h"
#include "base/contained.h"
#include "base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/links/nics.h"
#include "transports/tried_path.h"

namespace hdt::daemon {

using transport::Connection;
using transport::Link;
using transport::RailStatus;

namespace {

// The limit in ms of an attempt to get a rail back. It is short, since the next attempt may find the
// path free.
constexpr int64_t kRedialMs = 500;
// How often, in ms, the end that does not dial asks the other one.
constexpr int64_t kAskEveryMs = 500;
// If a network makes no connection within this time in ms, it is taken for dead, and other NICs are
// tried as well.
constexpr int64_t kSparesAfterMs = 1'000;

bool has_spares(const PeerLink& peer) {
  return std::any_of(peer.paths.begin(), peer.paths.end(), [](const RailPath& path) { return path.spare; });
}

}  // namespace

// Dials every path once. False: no path can even be tried, and the paths say why.
bool Engine::dial(PeerLink& peer) {
  for (RailPath& path : peer.paths) {
    if (!path.spare) dial_path(peer, path);
  }
  if (has_spares(peer)) peer.spares_at = Deadline::after_ms(kSparesAfterMs);
  if (!peer.dialing()) dial_spares(peer);
  return peer.dialing();
}

// Spares that are being dialled, or that wait for their time after a failure, are left alone.
void Engine::dial_spares(PeerLink& peer) {
  peer.spares_at = Deadline::never();
  if (peer.link.up()) return;  // spares are not needed
  for (RailPath& path : peer.paths) {
    if (path.spare && path.connection == nullptr && path.dial_at.is_never()) dial_path(peer, path);
  }
}

void Engine::dial_path(PeerLink& peer, RailPath& path) {
  path.dial_at = Deadline::never();
  if (contained("a dial of a node", [&] { begin_path(peer, path); })) return;
  path.failure = "no memory";  // short: takes no memory
  path.schedule(now_ns());
  if (!peer.announced) path.dial_at = Deadline::never();
}

// The handshake begins when the connection is made (on_completion()). Its limit is that of the dial, as the
// peer's kernel may accept for a daemon that does not answer.
void Engine::begin_path(PeerLink& peer, RailPath& path) {
  // Before the link is up, a dial may take long only if no other candidate is left (dial_candidate()).
  const int64_t limit_ms = peer.announced ? std::min(kRedialMs, options_.connect_ms) : peer.first_dial_ms;
  const size_t device = path.pair.device;
  // The number tells the peer which of this end's paths it is (PeerHello::rail).
  const auto number = static_cast<uint32_t>(&path - peer.paths.data());
  const PeerHello own{Purpose::kRail, options_.node, options_.node_name, options_.index,
                      peer.id.number, number,        peer.group_class};
  Rail rail{&peer, device,
            std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kDialer, own, options_.trust),
                                                Deadline::after_ms(limit_ms), peer.id.node}),
            Rail::Origin::kDialled};
  auto connection = devices_[device]->connect(path.pair.theirs.address, limit_ms);
  if (!connection.is_ok()) {
    path.failure = connection.status().message();
    path.schedule(now_ns());
    // Before the link is up each path is tried once.
    if (!peer.announced) path.dial_at = Deadline::never();
    return;
  }
  // If there is no memory to keep it, the connection is closed at its first event (on_completion()).
  rails_[connection.value()] = std::move(rail);
  path.connection = connection.value();
}

// Connects to where the peer's rails came from, and says in the handshake that this end has no rail left
// (Purpose::kNoRail). A peer that lives gives up its rails, which are dead as well, and dials. If nobody
// or another daemon answers, the peer's daemon is gone (on_connection_lost()).
void Engine::ask(PeerLink& peer) {
  peer.ask_at = Deadline::never();
  if (peer.link.up() || peer.ends.empty()) return;
  // An end from which no rail has come may be somebody else's address, whose refusal says nothing.
  for (const auto& [device, host] : peer.came_from) {
    const auto end = std::find_if(peer.ends.begin(), peer.ends.end(), [&, from = host](const RailEnd& other) {
      return other.backend == backends_[peer.backend].name && host_of(other.address) == from;
    });
    if (end == peer.ends.end()) continue;
    auto connection = devices_[device]->connect(end->address, kAskEveryMs);
    if (!connection.is_ok()) continue;
    const PeerHello own{Purpose::kNoRail, options_.node,  options_.node_name,
                        options_.index,   peer.id.number, 0,
                        peer.group_class};
    const auto keep = [&] {
      rails_[connection.value()] = {
          &peer, device,
          std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kDialer, own, options_.trust),
                                              Deadline::after_ms(kAskEveryMs), peer.id.node}),
          Rail::Origin::kAsking};
    };
    if (!contained("a question to a node", keep)) connection.value()->abandon();
  }
  peer.ask_at = Deadline::after_ms(kAskEveryMs);
}

// A connection that this end has dialled is gone: before it was a rail, or after. Decides whether the
// peer's daemon is gone, when the path is dialled again, and whether the whole link has failed.
void Engine::on_connection_lost(PeerLink& peer, const Connection& connection, Rail::Origin origin,
                                const Status& why, bool elsewhere) {
  RailPath* path = peer.path_of(connection);
  const bool refused = why.code() == Code::kNoDaemon;
  const bool was_there = origin == Rail::Origin::kAsking || (path != nullptr && path->proven);
  // 1. Nobody or another daemon listens where the peer did, and no rail is left: the peer's daemon is
  //    gone. A path on which the peer has never been says nothing about it.
  if ((refused || elsewhere) && was_there && peer.announced && !peer.link.up()) {
    peer.gone = true;
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
    HDT_LOG_WARN("rail to node {} over {} not made: {}: {} {}", peer.name, backends_[peer.backend].name,
                 path->pair.describe(), reason.message(), LogTag{.node = options_.node_name});
  }
  if (peer.announced) return;
  path->dial_at = Deadline::never();  // each is tried once, until one leads there
  // 4. The link is not up yet: try spares when all other paths have failed, and fail with the last path.
  const bool others = std::any_of(peer.paths.begin(), peer.paths.end(), [](const RailPath& other) {
    return !other.spare && other.connection != nullptr;
  });
  if (!others && !peer.spares_at.is_never()) dial_spares(peer);
  if (!peer.dialing()) forget_peer(peer, {Code::kLink, peer.failures()});
}

// The kernel reports that a NIC has gone down or come back. Its rails are given up at once, since TCP
// would notice only by time-outs; when it is back its paths are dialled at once.
void Engine::hear_nics() {
  for (const NicWatch::Event& event : nic_watch_.events()) {
    const auto is_it = [&](size_t device) { return options_.nics[device].info.name == event.name; };
    for (auto& [connection, rail] : rails_) {
      if (event.up || !is_it(rail.device)) continue;
      if (rail.greeting != nullptr) {
        connection->abandon();
      } else if (rail.peer != nullptr) {
        rail.peer->link.drop_rail(connection, {Code::kLink, "NIC " + event.name + " went down"});
      }
    }
    for (auto& [id, peer] : peers_) {
      for (RailPath& path : peer->paths) {
        if (!event.up || !is_it(path.pair.device) || path.connection != nullptr || !peer->announced) continue;
        // A flapping path stays held back, and a spare one is not needed.
        if (path.held_back_ns == 0 && (!path.spare || path.proven)) path.dial_at = Deadline::after_ms(0);
      }
    }
  }
}

// Links whose time has come. They are collected first, because a link that ends leaves peers_.
void Engine::run_link_timers() {
  std::vector<PeerLink*> due;
  for (auto& [id, peer] : peers_) {
    if (peer->next_time().expired()) due.push_back(peer.get());
  }
  const auto look_at = [this](PeerLink* peer) {
    peer->link.on_time();
    if (peer->link.down()) return;  // it was forgotten
    if (peer->spares_at.expired()) dial_spares(*peer);
    for (RailPath& path : peer->paths) {
      if (!path.dial_at.expired()) continue;
      // A spare path that has never carried a rail is not dialled while others do.
      if (path.spare && !path.proven && peer->link.up()) {
        path.dial_at = Deadline::never();
      } else {
        dial_path(*peer, path);
      }
    }
    if (peer->ask_at.expired()) ask(*peer);
  };
  for (PeerLink* peer : due) {
    (void)contained(
        "the time of a link", [&] { look_at(peer); },
        [&](const std::string& why) { break_link(*peer, why); });
  }
}

// Every rail gets a lane, also if its class is alone on the NIC: another class may come later. The lane
// refers to the NicShare, which stays for the engine's life.
std::unique_ptr<transport::NicShare::Lane> Engine::lane_on(size_t device, const std::string& group_class) {
  // Rails share a NIC by its first address: several backends may use the NIC, and it may have several
  // addresses. On loopback each address counts as a NIC.
  const auto& nics = options_.nics;
  const auto named = [&](const std::string& backend, const std::string& name) {
    return std::find_if(nics.begin(), nics.end(), [&](const BackendNic& nic) {
      return nic.backend == backend && nic_of(nic.info.name) == nic_of(name);
    });
  };
  const auto same_address = std::find_if(nics.begin(), nics.end(), [&](const BackendNic& nic) {
    return nic.info.address == nics[device].info.address;
  });
  const bool loopback = transport::OwnAddresses().has(same_address->info.address);
  const auto first = loopback ? same_address : named(same_address->backend, same_address->info.name);
  transport::NicShare& share = nic_shares_[first->info.address];
  // The policy is set again for each rail, as the class may be new on this NIC.
  share.set_policy(group_class, options_.policy_of(group_class));
  return std::make_unique<transport::NicShare::Lane>(share, group_class, now_ns());
}

// Links that wait for one another each hand over one fragment in turn, until none may (nic_share.h). The
// NICs decide which class goes first. Among the links of one class each is the first once.
void Engine::share_nics() {
  const auto waits = [](const auto& share) { return share.second.anyone_waits(); };
  if (std::none_of(nic_shares_.begin(), nic_shares_.end(), waits)) return;
  std::vector<PeerLink*> turns;
  for (auto& [id, peer] : peers_) turns.push_back(peer.get());
  if (turns.empty()) return;
  std::rotate(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(first_turn_++ % turns.size()),
              turns.end());
  for (bool moved = true; std::exchange(moved, false);) {
    for (auto& [address, share] : nic_shares_) share.forget_wishes();
    for (const PeerLink* peer : turns) peer->link.wants_turn();
    for (PeerLink* peer : turns) moved |= peer->link.take_turn();
  }
}

// The link belongs to an entry of peers_: links report only while they are there.
PeerLink& Engine::peer_of(const Link& link) {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return &p.second->link == &link; });
  return *found->second;
}

// The peer's link has sent its hello on the connection: from here on the rail carries traffic.
void Engine::on_rail_up(Link& link, const Connection& connection, const RailStatus& status) {
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
               status.local_address, status.remote_address, options_.nics[rail.device].info.name,
               LogTag{.node = options_.node_name});
  // tcp has found that large packets do not pass on this path (docs/design/transports.md).
  const auto* path = dynamic_cast<const transport::TriedPath*>(&connection);
  if (path == nullptr || path->narrowed().empty()) return;
  HDT_LOG_WARN("rail to node {} on {}: {} {}", peer.name, options_.nics[rail.device].info.name,
               path->narrowed(), LogTag{.node = options_.node_name});
}

// The link has given a rail up, or ends. The connection's own end follows as kClosed, and only then the path
// is dialled again (on_connection_lost()).
void Engine::on_rail_down(Link& link, const Connection& connection, const RailStatus& status,
                          const std::string& lost) {
  PeerLink& peer = peer_of(link);
  const Rail& rail = rails_.find(const_cast<Connection*>(&connection))->second;
  const auto rails = link.rails();
  const auto left = std::count_if(rails.begin(), rails.end(),
                                  [](const RailStatus& r) { return r.state == RailStatus::State::kUp; });
  // The last rail is lost: the end that does not dial asks at once; the one that does will try spares
  // soon.
  if (left == 0 && peer.paths.empty()) peer.ask_at = Deadline::after_ms(0);
  if (left == 0 && has_spares(peer)) peer.spares_at = Deadline::after_ms(kSparesAfterMs);
  if (lost.empty()) return;  // the link ends
  HDT_LOG_AT(is_used(peer) ? LogLevel::kWarn : LogLevel::kInfo,
             "rail to node {} lost: {} - {} on {}: {}; {} left {}", peer.name, status.local_address,
             status.remote_address, options_.nics[rail.device].info.name, lost, left,
             LogTag{.node = options_.node_name});
}

}  // namespace hdt::daemon
