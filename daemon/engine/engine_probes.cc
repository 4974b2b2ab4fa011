// What an engine measures: the memory of its node once (memory_rates.h), and each link when it comes up
// (link_probe.h). The results go to the groups of the link, which wait for them until they are ready,
// and to Control, which keeps them. They are not measured again while they are kept.
#include <algorithm>

#include "base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/links/memory_rates.h"

namespace hdt::daemon {

const ipc::MemoryRates& Engine::memory_rates() {
  // At the first group of several nodes: an engine without one needs no measurement.
  if (!options_.known.memory.measured()) {
    options_.known.memory = measure_memory();
    options_.on_measured([rates = options_.known.memory](KnownMeasurements& known) { known.memory = rates; });
  }
  return options_.known.memory;
}

Result<transport::RegionKey> Engine::probe_landing(uint32_t backend, const NodeId& node) {
  auto& landing = backends_[backend].probe_landing;
  // The memory is allocated and registered with a backend at the first link over that backend.
  if (!landing) {
    auto key = device_of(backend).register_memory(probe_memory_.take(), ProbeMemory::kAllBytes, -1);
    if (!key.is_ok()) return key;
    landing = key.value();
  }
  HDT_RETURN_IF_ERROR(device_of(backend).grant(*landing, writer(node)));
  return *landing;
}

// The name under which a link's measurements are kept: its node, and the backend unless it is tcp.
std::string Engine::measured_as(const PeerLink& peer) const {
  const std::string& backend = backends_[peer.backend].name;
  return backend == kTcp ? peer.name : peer.name + "/" + backend;
}

// A link that cannot be measured, as its memory cannot be registered, has no probe: its groups go on without
// measurements.
void Engine::make_probe(PeerLink& peer) {
  const auto landing = probe_landing(peer.backend, peer.id.node);
  if (!landing.is_ok()) {
    HDT_LOG_WARN("link to node {} is not measured: {} {}", peer.name, landing.status().message(),
                 LogTag{.node = options_.node_name});
    return;
  }
  // Cloned hosts have one name. What is known of one of them says nothing of the others.
  const bool one_of_that_name =
      peer.name != options_.node_name && std::none_of(peers_.begin(), peers_.end(), [&](const auto& other) {
        return other.second->name == peer.name && other.first.node != peer.id.node;
      });
  const auto known = one_of_that_name ? options_.known.links.find({measured_as(peer), options_.index})
                                      : options_.known.links.end();
  const ipc::LinkRates rates = known == options_.known.links.end() ? ipc::LinkRates{} : known->second;
  // Both ends must agree on which of them is first: the one with the smaller node id.
  peer.probe.emplace(peer.link, probe_memory_, landing.value(), rates, options_.node < peer.id.node);
}

// Ends the measurement if the probe has finished it.
void Engine::check_probe(PeerLink& peer) {
  if (peer.measured || !peer.probe || peer.probe->measuring()) return;
  finish_probe(peer);
}

// The link counts as measured from here on, also if its rates are not known.
// A measurement is over: done, given up, not needed or not possible. The groups that use the link get what is
// known, which may be nothing; then no node of the group predicts (cost_measurements.h).
void Engine::finish_probe(PeerLink& peer) {
  peer.measured = true;
  const ipc::LinkRates rates = peer.rates();
  // Exceptions here must not keep the rates from the groups that wait for them.
  (void)contained("measurements of a link", [&] {
    // What was kept before stays: both ends may know different numbers, and each group's table is agreed
    // on anyway.
    const std::pair<std::string, uint32_t> whom{measured_as(peer), options_.index};
    if (rates.measured() && !options_.known.links.contains(whom)) {
      options_.on_measured([whom, rates](KnownMeasurements& known) { known.links[whom] = rates; });
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
        // The next link of the group may begin, now that this one is done.
        measure_next(*group);
      });
      touch(group.get());
    }
  }
}

// The nodes measure in rounds r = 1, 2, ...: in round r, node n measures its link to node n ^ r. So
// every node has one link at a time, all nodes work at once, and a link waits only for links of earlier
// rounds. Hence no two links wait for each other.
std::optional<uint32_t> EngineGroup::next_to_measure() const {
  std::optional<uint32_t> next;
  for (uint32_t node = 0; node < link_told_.size(); ++node) {
    if (is_to_measure(node) && (!next || (node ^ context_.me) < (*next ^ context_.me))) next = node;
  }
  return next;
}

// Links of a group are measured one after another, since several at once would each get a part of the
// engine.
void Engine::measure_next(EngineGroup& group) {
  const auto node = group.next_to_measure();
  if (!node) return;
  for (auto& [id, peer] : peers_) {
    if (peer->probe && group.uses(*node, peer->link)) peer->probe->begin();
  }
}

// A message of the peer's measurement. If the peer begins (kHere) and no group of this node waits for
// its turn with this link, this end begins as well: any time is as good.
void Engine::on_probe_note(PeerLink& peer, const ProbeMessage& note) {
  if (!peer.probe) return;
  peer.probe->on_message(note);
  const bool waits = std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    const auto node = group != nullptr ? node_in(*group, peer) : std::nullopt;
    return node && group->uses(*node, peer.link) && group->is_to_measure(*node);
  });
  if (note.kind == ProbeMessage::Kind::kHere && !waits) peer.probe->begin();
  check_probe(peer);
}

// A measurement that has passed its deadline: the link counts as not measured, and groups go on without.
void Engine::run_probe_timers() {
  for (auto& [id, peer] : peers_) {
    if (peer->measured || !peer->probe || !peer->probe->until().expired()) continue;
    peer->probe->give_up();
    finish_probe(*peer);
  }
}

// When run_probe_timers() has something to do.
Deadline Engine::next_probe_time() const {
  Deadline next = Deadline::never();
  for (const auto& [id, peer] : peers_) {
    if (!peer->measured && peer->probe) next = Deadline::earlier(next, peer->probe->until());
  }
  return next;
}

}  // namespace hdt::daemon
