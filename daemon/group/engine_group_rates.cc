// engine_group_rates.cc: the rates of a group's links while it runs. They are the part that each link has now
// (link_part.h) of the rates that all nodes have measured when the group was made. rate_changes.h has how all
// nodes come to the same ones.
#include <algorithm>

#include "base/log.h"
#include "collectives/owner_weights.h"
#include "daemon/group/cost_measurements.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kLookAtNicsMs = 250;

}  // namespace

std::vector<ipc::NicsOfLink> EngineGroup::count_link_nics() const {
  std::vector<ipc::NicsOfLink> counts;
  for (const GroupPeer& peer : context_.peers)
    counts.push_back(peer.link == nullptr ? ipc::NicsOfLink{} : count_nics(peer.link->rails()));
  return counts;
}

void EngineGroup::set_rates(std::vector<ipc::NodeRates> table, std::vector<ipc::NicsOfLink> nics) {
  agreed_rates_ = std::move(table);
  agreed_nics_ = std::move(nics);
  seen_nics_.resize(agreed_nics_.size());
  chunks_.set_measurements(cost_measurements(agreed_rates_));
  for (const auto& change : rate_changes_->before())
    chunks_.change_measurements(change.call, measurements_with(change.parts));
  chunks_.read_below(rate_changes_->hold());
}

std::optional<collectives::CostMeasurements> EngineGroup::measurements_with(
    const RateChanges::Parts& parts) const {
  return cost_measurements(with_parts(agreed_rates_, parts));
}

// Only what has changed counts. The rates of rails always change a little, and are looked at again only when
// something else has changed.
void EngineGroup::on_rails(uint32_t node) {
  const transport::Link* link = context_.peers[node].link;
  if (agreed_nics_.empty() || link == nullptr) return;
  const auto rails = link->rails();
  LinkNics seen = nics_of(rails);
  if (seen == seen_nics_[node]) return;
  // The rails of a new link come one by one, some of them when the group is ready already.
  const ipc::NicsOfLink nics = count_nics(rails);
  if (agreed_nics_[node].moved == 0 && nics.count > agreed_nics_[node].count) set_measured_nics(node, nics);
  const std::optional<ipc::LinkPart> part = part_of(rails, agreed_nics_[node]);
  if (!part) return;
  seen_nics_[node] = std::move(seen);
  step_rates([&](RateChanges& changes) { changes.set_link(node, *part, now_ns()); });
}

void EngineGroup::set_measured_nics(uint32_t node, const ipc::NicsOfLink& nics) {
  agreed_nics_[node] = nics;
  ipc::Journal(context_.segment.journals(), context_.layout().nodes, context_.layout().slots)
      .set_nics(node, nics);
}

// From here on a NIC that comes is none of those that were measured.
void EngineGroup::on_other_nics(uint32_t node) {
  if (agreed_nics_.empty()) return;
  ipc::NicsOfLink nics = agreed_nics_[node];
  nics.moved = 1;
  set_measured_nics(node, nics);
  on_rails(node);
}

// While calls run. Between calls it does not matter.
void EngineGroup::look_at_nics() {
  if (!look_at_nics_.expired()) return;
  look_at_nics_ = Deadline::after_ms(kLookAtNicsMs);
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me) on_rails(node);
  }
}

void EngineGroup::step_rates(const std::function<void(RateChanges& changes)>& step) {
  if (!rate_changes_ || agreed_rates_.empty() || !may_change_rates()) return;
  step(*rate_changes_);
  chunks_.read_below(rate_changes_->hold());
}

// Another node may be ready before this one is. A proposal must wait until this node has rates that it could
// change; what the other's links have is only kept.
void EngineGroup::on_rate_change(const RateChangeMessage& note) {
  std::string wrong;
  if (!ready_ && note.kind == RateChangeMessage::Kind::kPropose) early_proposal_ = note;
  if (!ready_ && note.kind == RateChangeMessage::Kind::kNow && rate_changes_)
    wrong = rate_changes_->on_message(note, now_ns());
  step_rates([&](RateChanges& changes) { wrong = changes.on_message(note, now_ns()); });
  if (!wrong.empty())
    fail(Code::kInternal, -1,
         "node " + context_.nodes[note.from].name + " sent " + wrong + " to " + context_.name());
}

void EngineGroup::change_rates(uint64_t call, const RateChanges::Parts& parts) {
  chunks_.change_measurements(call, measurements_with(parts));
  HDT_LOG_INFO("{} has other rates from call {} on: {} of {} links have not the measured ones {}",
               context_.name(), call,
               std::ranges::count_if(parts, [](ipc::LinkPart part) { return part != ipc::kWholeLink; }),
               parts.size() - context_.nodes.size(), LogTag{.node = context_.nodes[context_.me].name});
}

// Back to equal parts any gain will do: there is nothing to gain by staying away from them.
bool EngineGroup::is_worth(const RateChanges::Parts& parts) const {
  Tuner changed(context_.layout(), context_.order, context_.algorithm);
  changed.set_measurements(measurements_with(parts));
  if (changed.rates().empty()) return false;  // something was never measured
  const std::span<const uint32_t> now = chunks_.tuner().weights();
  const double gain = collectives::seconds_of_a_byte(now, changed.rates()) /
                      collectives::seconds_of_a_byte(changed.weights(), changed.rates());
  return changed.weights().empty() && !now.empty() ? gain > 1 : gain >= kLeastGainOfParts;
}

bool EngineGroup::all_open() const {
  for (uint32_t node = 0; node < context_.peers.size(); ++node) {
    if (node != context_.me && !(context_.peers[node].open() && context_.peers[node].takes_part()))
      return false;
  }
  return true;
}

}  // namespace hdt::daemon
