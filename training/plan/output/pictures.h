// pictures.h: pictures of a predicted step: a trace for ui.perfetto.dev, and a plot of the pipeline.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/prediction.h"

namespace hdt::plan {

// JSON in the trace event format, which Perfetto reads. Each replica is a process. Each stage has one
// thread for its computation, and more threads for its messages and reductions, which may overlap.
std::string perfetto_trace(const Plan& plan, const Prediction& prediction);

// A script for gnuplot (training/data/plot.h) that draws a row for each worker with its forwards, backwards,
// reductions and updates over time. Messages are not drawn.
std::string pipeline_script(const Plan& plan, const Prediction& prediction);

}  // namespace hdt::plan
