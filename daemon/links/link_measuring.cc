// link_measuring.cc: see link_measuring.h.
#include "daemon/links/link_measuring.h"

#include <algorithm>
#include <vector>

#include "base/contained.h"
#include "base/log.h"
#include "daemon/links/memory_rates.h"

namespace hdt::daemon {

// Rates that an earlier run of the daemon has kept count as measured. News go to control at once, which
// writes them to the state folder.
const ipc::MemoryRates& LinkMeasuring::memory() {
  if (!known_.memory.measured()) {
    known_.memory = measure_memory();
    KnownMeasurements news;
    news.memory = known_.memory;
    user_.on_news(news);
  }
  return known_.memory;
}

// A link over another backend has other figures. The node's name alone stands for tcp.
std::string LinkMeasuring::kept_as(const PeerLink& peer) const {
  const std::string& backend = devices_.backend_name(peer.backend);
  return backend == kTcp ? peer.name : peer.name + "/" + backend;
}

// The rates that are known go into the probe, which measures nothing if both ends know theirs
// (link_probe.h).
void LinkMeasuring::make_probe(PeerLink& peer) {
  // Bursts land in memory that is allocated at the first link.
  if (!registration_) registration_.emplace(devices_, memory_.take(), ProbeMemory::kAllBytes, -1);
  const auto key = registration_->key(peer.backend, peer.id.node);
  if (!key.is_ok()) {
    HDT_LOG_WARN("link to node {} is not measured: {} {}", peer.name, key.status().message(),
                 LogTag{.node = settings_.node_name});
    return;
  }
  // Cloned hosts have one name. Measurements of one of them do not hold for the others.
  const auto& links = links_.all();
  const bool one_of_that_name =
      peer.name != settings_.node_name && std::none_of(links.begin(), links.end(), [&](const auto& other) {
        return other.second->name == peer.name && other.first.node != peer.id.node;
      });
  const auto known =
      one_of_that_name ? known_.links.find({kept_as(peer), settings_.index}) : known_.links.end();
  const ipc::LinkRates rates = known == known_.links.end() ? ipc::LinkRates{} : known->second;
  // Both ends must agree on which of them is first: the one with the smaller node id.
  peer.probe.emplace(peer.link, memory_, key.value(), rates, settings_.node < peer.id.node);
}

// Called after each message of the probe and when a link has come up. Groups that compare rates are not
// ready before (EngineGroup::is_to_measure()).
void LinkMeasuring::end_if_done(PeerLink& peer) {
  if (peer.measured || (peer.probe && peer.probe->measuring())) return;
  end(peer);
}

// The measurement is done, given up, not needed or not possible.
void LinkMeasuring::end(PeerLink& peer) {
  peer.measured = true;
  const ipc::LinkRates rates = peer.rates();
  // Exceptions here must not keep the rates from the groups that wait for them.
  (void)contained("measurements of a link", [&] {
    // Rates that were kept before stay: both ends may know different numbers, and each group's table is
    // agreed on anyway.
    const std::pair<std::string, uint32_t> whom{kept_as(peer), settings_.index};
    if (rates.measured() && !known_.links.contains(whom)) {
      KnownMeasurements news;
      news.links[whom] = rates;
      user_.on_news(news);
      known_.links[whom] = rates;
    }
    HDT_LOG_INFO("link to node {} over {}: {} ns, {} bytes/s, {} both ways at once {}", peer.name,
                 devices_.backend_name(peer.backend), rates.latency_ns, rates.bytes_s, rates.duplex_bytes_s,
                 LogTag{.node = settings_.node_name});
  });
  user_.on_link_rates(peer, rates);
}

// The memory stays registered for other nodes; only the permission of this one ends.
void LinkMeasuring::forget_node(const NodeId& node) {
  if (registration_) registration_->revoke(node);
}

// Collected first, since end() informs groups, which may begin the measurement of another link.
void LinkMeasuring::run_timers() {
  std::vector<PeerLink*> late;
  for (const auto& [id, peer] : links_.all()) {
    if (!peer->measured && peer->probe && peer->probe->until().expired()) late.push_back(peer.get());
  }
  for (PeerLink* peer : late) {
    peer->probe->give_up();
    end(*peer);
  }
}

// The deadline of the probe that ends first; a link without a probe has none.
Deadline LinkMeasuring::next_time() const {
  Deadline next = Deadline::never();
  for (const auto& [id, peer] : links_.all()) {
    if (!peer->measured && peer->probe) next = Deadline::earlier(next, peer->probe->until());
  }
  return next;
}

}  // namespace hdt::daemon
