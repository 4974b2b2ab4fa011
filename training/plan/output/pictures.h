// pictures.h: a predicted step for people: a trace for ui.perfetto.dev and a picture of the pipeline.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"

namespace hdt::plan {

// JSON in the trace event format, which Perfetto reads: a process a replica; of each stage one thread for
// computation, and threads for its messages and reductions, which may overlap.
std::string perfetto_trace(const Plan& plan, const Prediction& prediction);

// SVG: a row a worker; forwards, backwards, waits for reductions and updates over time.
std::string pipeline_svg(const Plan& plan, const Prediction& prediction);

}  // namespace hdt::plan
