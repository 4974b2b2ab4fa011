// engine_group_rates.cc: the rates of a group's links while it runs. They are those that all nodes have
// measured when the group was made, less what is missing of each link's rails now. rate_changes.h has how all
// nodes come to the same ones.
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "collectives/owner_weights.h"
#include "daemon/group/cost_measurements.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

namespace {

using transport::RailStatus;

// What is left of a link that had `rails_then` rails when it was measured; nothing while it has none, as it
// may be about to end. Rails count by the rates that they had lately, or alike if some rate is not known. A
// daemon that was started again knows nothing of rails that were lost before, but how many they are.
std::optional<ipc::LinkPart> part_of(const std::vector<RailStatus>& rails, uint32_t rails_then) {
  const bool all_known =
      std::ranges::none_of(rails, [](const auto& rail) { return rail.bytes_per_second == 0; });
  double up = 0;
  double all = 0;
  for (const RailStatus& rail : rails) {
    const double rate = all_known ? static_cast<double>(rail.bytes_per_second) : 1;
    all += rate;
    if (rail.up()) up += rate;
  }
  if (up == 0) return {};
  if (rails_then > rails.size()) all *= static_cast<double>(rails_then) / static_cast<double>(rails.size());
  return static_cast<ipc::LinkPart>(
      std::clamp(std::round(up / all * ipc::kWholeLink), 1.0, 1.0 * ipc::kWholeLink));
}

}  // namespace

std::vector<uint32_t> EngineGroup::count_rails() const {
  std::vector<uint32_t> counts;
  for (const GroupPeer& peer : context_.peers) {
    const auto rails = peer.link == nullptr ? std::vector<RailStatus>() : peer.link->rails();
    counts.push_back(static_cast<uint32_t>(std::ranges::count_if(rails, &RailStatus::up)));
  }
  return counts;
}

void EngineGroup::set_rates(std::vector<ipc::NodeRates> table, std::vector<uint32_t> rails) {
  agreed_rates_ = std::move(table);
  agreed_rails_ = std::move(rails);
  chunks_.set_measurements(cost_measurements(agreed_rates_));
  for (const auto& change : rate_changes_->before())
    chunks_.change_measurements(change.call, measurements_with(change.parts));
  chunks_.read_below(rate_changes_->hold());
}

std::optional<collectives::CostMeasurements> EngineGroup::measurements_with(
    const RateChanges::Parts& parts) const {
  return cost_measurements(with_parts(agreed_rates_, parts));
}

void EngineGroup::on_rails(uint32_t node) {
  const transport::Link* link = context_.peers[node].link;
  if (agreed_rails_.empty() || link == nullptr) return;
  const std::optional<ipc::LinkPart> part = part_of(link->rails(), agreed_rails_[node]);
  if (part) step_rates([&](RateChanges& changes) { changes.set_link(node, *part, now_ns()); });
}

void EngineGroup::step_rates(const std::function<void(RateChanges& changes)>& step) {
  if (!rate_changes_ || agreed_rates_.empty() || !may_change_rates()) return;
  step(*rate_changes_);
  chunks_.read_below(rate_changes_->hold());
}

// Another node may be ready before this one is. A proposal must wait until this node has rates that it could
// change; what is left of the other's links is only kept.
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
  HDT_LOG_INFO("{} has other rates from call {} on: {} of {} links are not whole {}", context_.name(), call,
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
