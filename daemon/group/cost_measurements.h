// cost_measurements.h: turns what the nodes of a group have measured into the parameters of the cost model.
// All nodes have the same table (RatesMessage in wire.h), so all get the same parameters. Pure; any thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/cost_model.h"
#include "ipc/journal.h"
#include "ipc/measurements.h"

namespace hdt::daemon {

// `table` has one entry per node. Nothing if any measurement is missing: then no node has parameters,
// and the tuner decides by the size of a chunk.
std::optional<collectives::CostMeasurements> cost_measurements(std::vector<ipc::NodeRates> table);

// The table where each link has as much of its rates as `parts` says (ipc::RatesChange), as many as nodes *
// nodes.
std::vector<ipc::NodeRates> with_parts(std::vector<ipc::NodeRates> table,
                                       std::span<const ipc::LinkPart> parts);

}  // namespace hdt::daemon
