// textbook.h: the layouts that every engineer writes down first. They are candidates of every search, so no
// search ends with a plan that is slower than one of them.
//
// A layout is made of a row of workers, an arrangement, a number of stages, a micro-batch size and a split:
// - Rows: the nodes in the order of the cluster; by their kind, in all orders of few kinds; each kind alone.
//   Nodes with other NICs are other kinds.
// - Arrangements: a pipeline of neighbours in the row (inside nodes, data parallel across); stage by stage
//   (Megatron's default order of ranks); across blocks of nodes (data parallel inside); of neighbours inside
//   one node, or inside one kind, only. One stage is pure data parallelism.
// - Splits: even; with the first and the last stage lighter; in proportion to the devices' speed; with the
//   shortest longest stage, where embedding and head count.
// Micro-batches are given out by speed, and equally where they can be shared equally.
#pragma once

#include <functional>

#include "training/plan/search/plan_gauge.h"
#include "training/plan/search/search.h"

namespace hdt::plan {

// Calls `visit` with each layout, until it returns false. `gauge` must belong to the same inputs and options.
// Whether a layout fits memory, and has its links, is for the caller to check.
void for_each_textbook_plan(const PredictionInputs& inputs, const SearchOptions& options, PlanGauge& gauge,
                            const std::function<bool(Plan)>& visit);

}  // namespace hdt::plan
