// What an engine measures: its node's memory, and each link when it comes up.
#include <algorithm>

#include "base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/links/memory_rates.h"

namespace hdt::daemon {

const session::MemoryRates& Engine::memory_rates() {
  if (!options_.known.memory.measured()) {
    options_.known.memory = measure_memory();
    options_.on_measured([rates = options_.known.memory](KnownFigures& known) { known.memory = rates; });
  }
  return options_.known.memory;
}

Result<transport::RegionKey> Engine::probe_landing(uint32_t backend, const NodeId& node) {
  auto& landing = backends_[backend].probe_landing;
  if (!landing) {
    auto key = device_of(backend).register_memory(probe_memory_.take(), ProbeMemory::kAllBytes, -1);
    if (!key.is_ok()) return key;
    landing = key.value();
  }
  HDT_RETURN_IF_ERROR(device_of(backend).grant(*landing, writer(node)));
  return *landing;
}

// Under which name what is known of a link is kept.
std::string Engine::measured_as(const PeerLink& peer) const {
  const std::string& backend = backends_[peer.backend].name;
  return backend == kTcp ? peer.name : peer.name + "/" + backend;
}

void Engine::make_probe(PeerLink& peer) {
  const auto landing = probe_landing(peer.backend, peer.id.node);
  if (!landing.is_ok()) {
    HDT_LOG_WARN("link to node {} is not measured: {} {}", peer.name, landing.status().message(),
                 LogTag{.node = options_.node_name});
    return;
  }
  // Hosts that were cloned have one name: what is known of one of them says nothing of the others.
  const bool one_of_that_name =
      peer.name != options_.node_name && std::none_of(peers_.begin(), peers_.end(), [&](const auto& other) {
        return other.second->name == peer.name && other.first.node != peer.id.node;
      });
  const auto known = one_of_that_name ? options_.known.links.find({measured_as(peer), options_.index})
                                      : options_.known.links.end();
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
  // Whatever is not kept or logged: groups wait for the rates.
  (void)contained("figures of a link", [&] {
    const std::pair<std::string, uint32_t> whom{measured_as(peer), options_.index};
    if (rates.measured() && !options_.known.links.contains(whom)) {
      options_.on_measured([whom, rates](KnownFigures& known) { known.links[whom] = rates; });
      options_.known.links[whom] = rates;
    }
    HDT_LOG_INFO("link to node {} over {}: {} ns, {} bytes/s, {} both ways at once {}", peer.name,
                 backends_[peer.backend].name, rates.latency_ns, rates.bytes_s, rates.duplex_bytes_s,
                 LogTag{.node = options_.node_name});
  });
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    if (const auto node = node_in(*group, peer); node && group->uses(*node, peer.link)) {
      contain(*group, [&] {
        group->on_link_measured(*node, rates);
        measure_next(*group);
      });
      touch(group.get());
    }
  }
}

// In round r = 1, 2, ... nodes n and n ^ r measure: each has one link at a time, all of them at work, and a
// link waits only for those of earlier rounds, so for none that waits for it.
std::optional<uint32_t> EngineGroup::next_to_measure() const {
  std::optional<uint32_t> next;
  for (uint32_t node = 0; node < link_told_.size(); ++node) {
    if (is_to_measure(node) && (!next || (node ^ context_.me) < (*next ^ context_.me))) next = node;
  }
  return next;
}

// A group's links are measured one after another: at the same time each would get a part of the engine.
void Engine::measure_next(EngineGroup& group) {
  const auto node = group.next_to_measure();
  if (!node) return;
  for (auto& [id, peer] : peers_) {
    if (peer->probe && group.uses(*node, peer->link)) peer->probe->begin();
  }
}

// The peer's groups want the link measured. Where none of this node waits for a turn, now is as good as any
// time.
void Engine::on_probe_note(PeerLink& peer, const ProbeNote& note) {
  if (!peer.probe) return;
  peer.probe->on_note(note);
  const bool waits = std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    const auto node = group != nullptr ? node_in(*group, peer) : std::nullopt;
    return node && group->uses(*node, peer.link) && group->is_to_measure(*node);
  });
  if (note.kind == ProbeNote::Kind::kHere && !waits) peer.probe->begin();
  check_probe(peer);
}

void Engine::run_probe_timers() {
  for (auto& [id, peer] : peers_) {
    if (peer->measured || !peer->probe || !peer->probe->until().expired()) continue;
    peer->probe->give_up();
    finish_probe(*peer);
  }
}

Deadline Engine::next_probe_time() const {
  Deadline next = Deadline::never();
  for (const auto& [id, peer] : peers_) {
    if (!peer->measured && peer->probe) next = Deadline::earlier(next, peer->probe->until());
  }
  return next;
}

}  // namespace hdt::daemon
