// What an engine measures: its node's memory, and each link when it comes up.
#include "base/log.h"
#include "daemon/engine.h"
#include "daemon/memory_rates.h"

namespace hdt::daemon {

const session::MemoryRates& Engine::memory_rates() {
  if (!options_.known.memory.measured()) {
    options_.known.memory = measure_memory();
    options_.on_measured([rates = options_.known.memory](KnownFigures& known) { known.memory = rates; });
  }
  return options_.known.memory;
}

Result<transport::RegionKey> Engine::probe_landing(uint32_t backend) {
  auto& landing = backends_[backend].probe_landing;
  if (landing) return *landing;
  auto key = device_of(backend).register_memory(probe_memory_.landing(), ProbeMemory::kLandingBytes, -1);
  if (key.is_ok()) landing = key.value();
  return key;
}

// Under which name what is known of a link is kept.
std::string Engine::measured_as(const PeerLink& peer) const {
  const std::string& backend = backends_[peer.backend].name;
  return backend == kTcp ? peer.name : peer.name + "/" + backend;
}

void Engine::start_probe(PeerLink& peer) {
  const auto landing = probe_landing(peer.backend);
  if (!landing.is_ok()) {
    HDT_LOG_WARN("link to node {} is not measured: {} {}", peer.name, landing.status().message(),
                 LogTag{.node = options_.node_name});
    return;
  }
  const auto known = options_.known.links.find({measured_as(peer), options_.index});
  const session::LinkRates rates = known == options_.known.links.end() ? session::LinkRates{} : known->second;
  peer.probe.emplace(peer.link, probe_memory_, landing.value(), rates, options_.node < peer.id.node);
}

// Tells the groups of the link, and who keeps it, once it is measured.
void Engine::check_probe(PeerLink& peer) {
  if (peer.measured || !peer.probe || peer.probe->measuring()) return;
  finish_probe(peer);
}

void Engine::finish_probe(PeerLink& peer) {
  peer.measured = true;
  const session::LinkRates rates = peer.rates();
  const std::pair<std::string, uint32_t> whom{measured_as(peer), options_.index};
  if (rates.measured() && !options_.known.links.contains(whom)) {
    options_.known.links[whom] = rates;
    options_.on_measured([whom, rates](KnownFigures& known) { known.links[whom] = rates; });
  }
  HDT_LOG_INFO("link to node {} over {}: {} ns, {} bytes/s, {} both ways at once {}", peer.name,
               backends_[peer.backend].name, rates.latency_ns, rates.bytes_s, rates.duplex_bytes_s,
               LogTag{.node = options_.node_name});
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    if (const auto node = node_in(*group, peer); node && group->uses(*node, peer.link)) {
      group->on_link_measured(*node, rates);
      touch(group.get());
    }
  }
}

void Engine::run_probe_timers() {
  for (auto& [id, peer] : peers_) {
    if (!peer->probe) continue;
    peer->probe->on_time();
    if (peer->measured || !peer->probe->until().expired()) continue;
    peer->probe->give_up();
    finish_probe(*peer);
  }
}

std::optional<Deadline> Engine::next_probe_time() const {
  std::optional<Deadline> next;
  for (const auto& [id, peer] : peers_) {
    if (!peer->probe) continue;
    const Deadline bursts = peer->probe->next_time();
    const Deadline time = peer->measured ? bursts : Deadline::earlier(bursts, peer->probe->until());
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

}  // namespace hdt::daemon
