// Rails of an engine: dialling them, again whenever they are lost, and giving them up when their NIC goes down.
#include <algorithm>

#include "base/log.h"
#include "daemon/engine.h"

namespace hdt::daemon {

using transport::Connection;
using transport::Link;
using transport::RailStatus;

namespace {

// Of an attempt to get a rail back: the next one may find the way free.
constexpr int64_t kRedialMs = 500;
constexpr int64_t kAskEveryMs = 500;

}  // namespace

void Engine::dial(PeerLink& peer) {
  for (RailPath& path : peer.paths) dial_path(peer, path);
}

void Engine::dial_path(PeerLink& peer, RailPath& path) {
  path.dial_at = Deadline::never();
  const int64_t limit_ms = peer.announced ? std::min(kRedialMs, options_.connect_ms) : peer.first_dial_ms;
  auto connection = devices_[path.device]->connect(path.address, limit_ms);
  if (!connection.is_ok()) {
    peer.last_error = connection.status().message();
    return path.schedule(now_ns());
  }
  path.connection = connection.value();
  const auto number = static_cast<uint32_t>(&path - peer.paths.data());
  const PeerHello own{Purpose::kRail, options_.node, options_.node_name, options_.index,
                      peer.id.number, number,        peer.group_class};
  rails_[path.connection] = {
      &peer, path.device,
      std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kDialer, own, options_.cluster_key),
                                          Deadline::after_ms(limit_ms), peer.id.node}),
      Rail::Origin::kDialled};
}

void Engine::ask(PeerLink& peer) {
  peer.ask_at = Deadline::never();
  if (peer.link.up() || peer.pairs.empty()) return;
  for (const auto& [device, ours, theirs] : peer.pairs) {
    auto connection = devices_[device]->connect(theirs.address, kAskEveryMs);
    if (!connection.is_ok()) continue;
    const PeerHello own{Purpose::kRail,  options_.node, options_.node_name, options_.index, peer.id.number, 0,
                        peer.group_class};
    rails_[connection.value()] = {
        &peer, device,
        std::make_unique<Greeting>(Greeting{Handshake(Handshake::Role::kDialer, own, options_.cluster_key),
                                            Deadline::after_ms(kAskEveryMs), peer.id.node}),
        Rail::Origin::kAsking};
  }
  peer.ask_at = Deadline::after_ms(kAskEveryMs);
}

void Engine::on_connection_lost(PeerLink& peer, const Connection& connection, Rail::Origin origin,
                                const Status& why) {
  // Nobody listens where the peer did, and no rail is left: its daemon is gone.
  if (why.code() == Code::kNoDaemon && peer.announced && !peer.link.up()) {
    peer.gone = true;
    return peer.link.close({Code::kLink, "its daemon does not listen any more: " + why.message()});
  }
  if (origin == Rail::Origin::kAsking) return;
  const auto path = std::find_if(peer.paths.begin(), peer.paths.end(),
                                 [&](const RailPath& p) { return p.connection == &connection; });
  if (path == peer.paths.end()) return;
  path->schedule(now_ns());
  if (peer.last_error.empty() || why.code() != Code::kLink || !peer.announced)
    peer.last_error = why.message();
  if (peer.announced) return;
  HDT_LOG_WARN("rail to node {} over {} not made: {} {}", peer.name, backends_[peer.backend].name,
               why.message(), LogTag{.node = options_.node_name});
  if (!peer.dialing()) forget_peer(peer, {Code::kLink, peer.last_error});
}

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
        if (!event.up || !is_it(path.device) || path.connection != nullptr || !peer->announced) continue;
        // A flapping one stays held back.
        if (path.held_back_ns == 0) path.dial_at = Deadline::after_ms(0);
      }
    }
  }
}

void Engine::run_link_timers() {
  std::vector<PeerLink*> due;
  for (auto& [id, peer] : peers_) {
    if (peer->next_time().expired()) due.push_back(peer.get());
  }
  for (PeerLink* peer : due) {
    peer->link.on_time();
    if (peer->link.down()) continue;  // forgotten
    for (RailPath& path : peer->paths) {
      if (path.dial_at.expired()) dial_path(*peer, path);
    }
    if (peer->ask_at.expired()) ask(*peer);
  }
}

std::unique_ptr<transport::NicShare::Lane> Engine::lane_on(size_t device, const std::string& group_class) {
  transport::NicShare& share = nic_shares_[options_.nics[device].info.address];
  share.set_policy(group_class, options_.policy_of(group_class));
  return std::make_unique<transport::NicShare::Lane>(share, group_class, now_ns());
}

// Links that wait for one another: each gives one chunk in its turn, until none may. What class goes first is the NICs' choice;
// of the links of one class each is the first once.
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

PeerLink& Engine::peer_of(const Link& link) {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return &p.second->link == &link; });
  return *found->second;
}

void Engine::on_rail_up(Link& link, const Connection& connection, const RailStatus& status) {
  PeerLink& peer = peer_of(link);
  const Rail& rail = rails_.find(const_cast<Connection*>(&connection))->second;
  peer.ask_at = Deadline::never();
  for (RailPath& path : peer.paths) {
    if (path.connection != &connection) continue;
    path.up = true;
    path.up_ns = now_ns();
    path.failures = 0;
  }
  HDT_LOG_INFO("rail to node {} {}: {} - {} on {} {}", peer.name, status.losses > 0 ? "back" : "up",
               status.local_address, status.remote_address, options_.nics[rail.device].info.name,
               LogTag{.node = options_.node_name});
}

void Engine::on_rail_down(Link& link, const Connection& connection, const RailStatus& status,
                          const std::string& lost) {
  PeerLink& peer = peer_of(link);
  const Rail& rail = rails_.find(const_cast<Connection*>(&connection))->second;
  const auto rails = link.rails();
  const auto left = std::count_if(rails.begin(), rails.end(),
                                  [](const RailStatus& r) { return r.state == RailStatus::State::kUp; });
  if (left == 0 && peer.paths.empty()) peer.ask_at = Deadline::after_ms(0);
  if (lost.empty()) return;  // the link ends
  HDT_LOG_WARN("rail to node {} lost: {} - {} on {}: {}; {} left {}", peer.name, status.local_address,
               status.remote_address, options_.nics[rail.device].info.name, lost, left,
               LogTag{.node = options_.node_name});
}

}  // namespace hdt::daemon
