// How a group becomes ready, and what is done while it is not. A node sends GroupReady when it has every
// other node's hello, a link to each, and the measurements of all; it is ready itself when it has
// GroupReady of all. So no rank begins while another node still lacks something. If the making takes too
// long, the group fails with kTimeout and names the nodes that are missing.
#include <algorithm>
#include <utility>

#include "daemon/group/cost_measurements.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

namespace {

// The interval of pings. A path that fails is found out only by what is sent on it; the backend then
// gives up after kPeerTimeoutMs (transports/net/socket.h).
constexpr int64_t kPingMs = 1'000;

}  // namespace

// The measurements of all of this node's links go out in one message, when the last one is known.
void EngineGroup::on_link_measured(uint32_t node, const ipc::LinkRates& rates) {
  if (!compares_rates() || link_told_[node]) return;
  own_rates_.links[node] = rates;
  link_told_[node] = true;
  if (!std::all_of(link_told_.begin(), link_told_.end(), [](bool told) { return told; })) return;
  context_.send_all(RatesMessage{context_.id, context_.me, own_rates_});
  keep_rates(context_.me, own_rates_);
}

// Rates come from another node. The decoder has refused rates that make no sense; wrong ones make the
// choice of algorithms worse, and no result wrong.
void EngineGroup::keep_rates(uint32_t node, const ipc::NodeRates& rates) {
  if (rates_[node]) return;  // the first ones are what all nodes have
  rates_[node] = rates;
  check_ready();
}

// Called after each event that can complete the making. Nothing is undone here: a node that fails
// afterwards fails the group.
void EngineGroup::check_ready() {
  // 1. Every other node has sent its hello and has a link in use, and everyone's measurements are here.
  if (ready_ || context_.failed()) return;
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    const GroupPeer& peer = context_.peers[node];
    if (node != context_.me && (!peer.ready || peer.link == nullptr)) return;
    if (compares_rates() && !rates_[node]) return;
  }
  // 2. This node has all it needs. Another node may still lack what this one has got, and may never get
  //    it, so every node waits until all have sent this message.
  if (!solo() && !std::exchange(told_ready_, true)) context_.send_all(GroupReady{context_.id, context_.me});
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me && !context_.peers[node].has_all) return;
  }
  // 3. All nodes have the same table now. It goes into the journal, as a successor of this daemon must
  //    choose the same algorithms, and to the tuner. It is moved out of `rates_`: a group becomes ready
  //    only once.
  if (compares_rates()) {
    std::vector<ipc::NodeRates> table;
    for (auto& rates : rates_) table.push_back(std::move(*rates));
    std::vector<ipc::NicsOfLink> nics = count_link_nics();
    ipc::Journal(context_.segment.journals(), context_.layout().nodes, context_.layout().slots)
        .agree({context_.algorithm, table, nics});
    set_rates(std::move(table), std::move(nics));
    publish_rates();
  }
  // 4. Ready: the ranks learn of it through on_ready.
  ready_ = true;
  if (early_proposal_) on_rate_change(*std::exchange(early_proposal_, std::nullopt));
  if (!on_ready_) return;
  on_ready_(Status::ok());
  on_ready_ = nullptr;
}

// Only now, before the ranks learn that the group is made. Ranks of different nodes would see a later change
// at different calls, and would not come to the same counts (hdtSuggestCounts).
void EngineGroup::publish_rates() {
  std::ranges::copy(chunks_.tuner().holder_rates(), context_.segment.node_rates().begin());
}

// By on_time(), while a rank waits for the group.
void EngineGroup::look_at_making() {
  // A node that has sent GroupReady needs no ping: only its own end can still be waiting.
  if (ping_at_.expired()) {
    ping_at_ = Deadline::after_ms(kPingMs);
    for (const GroupPeer& peer : context_.peers) {
      if (peer.link != nullptr && !peer.has_all) peer.link->ping();
    }
  }
  // At the deadline the failure names every node that has not sent GroupReady.
  if (!deadline_.expired()) return;
  std::string missing;
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    const GroupPeer& peer = context_.peers[node];
    if (node == context_.me || peer.has_all) continue;
    missing += (missing.empty() ? "" : ", ") + context_.nodes[node].name +
               (peer.link == nullptr ? " (no connection)" : " (connected, not ready)");
  }
  fail(Code::kTimeout, -1, "making " + context_.name() + ": node " + missing + " did not get ready in time");
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

}  // namespace hdt::daemon
