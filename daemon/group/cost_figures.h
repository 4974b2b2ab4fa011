// cost_figures.h: what the cost model computes with, from what the nodes of a group have measured.
#pragma once

#include <optional>
#include <vector>

#include "collectives/cost_model.h"
#include "ipc/measurements.h"

namespace hdt::daemon {

// One entry per node. Nothing if something is not measured: then no node has figures.
std::optional<collectives::CostFigures> cost_figures(std::vector<session::NodeRates> table);

}  // namespace hdt::daemon
