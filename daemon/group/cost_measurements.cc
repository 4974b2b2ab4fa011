#include "daemon/group/cost_measurements.h"

#include <algorithm>

#include "transports/link/link.h"

namespace hdt::daemon {

namespace {

// The cost of a step for the engine in seconds: a system call and some bookkeeping. Assumed, not measured.
constexpr double kStepOverheadS = 2e-6;
// A measured latency is half of a round trip, and contains one step of each end (kStepOverheadS), which
// the cost model adds by itself. So two steps are taken off.
constexpr uint64_t kStepsOfATripNs = 4'000;

}  // namespace

// Nothing: some node or link was not measured. Then no node predicts, since the nodes that could would
// choose other algorithms than those that cannot.
std::optional<collectives::CostMeasurements> cost_measurements(std::vector<ipc::NodeRates> table) {
  collectives::CostMeasurements measurements;
  for (size_t node = 0; node < table.size(); ++node) {
    const ipc::NodeRates& rates = table[node];
    if (!rates.memory.measured() || rates.links.size() != table.size()) return std::nullopt;
    for (size_t peer = 0; peer < table.size(); ++peer) {
      if (peer != node && !rates.links[peer].measured()) return std::nullopt;
    }
    measurements.memory.push_back(
        {static_cast<double>(rates.memory.reduce_bytes_s), static_cast<double>(rates.memory.copy_bytes_s)});
  }
  measurements.step_overhead_s = kStepOverheadS;
  measurements.copied_bytes = transport::kCopiedWriteBytes;
  // The function owns the table. A latency below the cost of the steps becomes 0.
  measurements.link_of = [table = std::move(table)](int from, int to) {
    const ipc::LinkRates& link = table[static_cast<size_t>(from)].links[static_cast<size_t>(to)];
    const uint64_t latency_ns = std::max(link.latency_ns, kStepsOfATripNs) - kStepsOfATripNs;
    return collectives::LinkMeasurements{static_cast<double>(latency_ns) * 1e-9,
                                         static_cast<double>(link.bytes_s),
                                         static_cast<double>(link.duplex_bytes_s)};
  };
  return measurements;
}

// The quotient first, and a limit: rates are foreign and may be as large as any number.
std::vector<ipc::NodeRates> with_parts(std::vector<ipc::NodeRates> table,
                                       std::span<const ipc::LinkPart> parts) {
  for (size_t from = 0; from < table.size(); ++from) {
    for (size_t to = 0; to < table[from].links.size(); ++to) {
      const ipc::LinkPart part = parts[from * table.size() + to];
      if (part == ipc::kWholeLink) continue;
      ipc::LinkRates& link = table[from].links[to];
      // A rate of 0 would mean that the link was not measured.
      for (uint64_t* rate : {&link.bytes_s, &link.duplex_bytes_s}) {
        const uint64_t unit = std::min(*rate / ipc::kWholeLink, UINT64_MAX / ipc::kLargestPart);
        *rate = *rate == 0 ? 0 : std::max<uint64_t>(unit * part, 1);
      }
    }
  }
  return table;
}

}  // namespace hdt::daemon
