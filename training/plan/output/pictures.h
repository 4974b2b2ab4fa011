// pictures.h: pictures of a predicted step: a trace for ui.perfetto.dev, and an SVG of the pipeline.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"

namespace hdt::plan {

// JSON in the trace event format, which Perfetto reads. Each replica is a process. Each stage has one
// thread for its computation, and more threads for its messages and reductions, which may overlap.
std::string perfetto_trace(const Plan& plan, const Prediction& prediction);

// An SVG with a row for each worker, which shows forwards, backwards, reductions and updates over time.
// Messages are not drawn.
std::string pipeline_svg(const Plan& plan, const Prediction& prediction);

}  // namespace hdt::plan
