// trace_file.h: recorded operations as a trace in Chrome's JSON format, which Perfetto (ui.perfetto.dev)
// and chrome://tracing show.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace hdt::ctl {

// Nodes are processes of the trace, and ranks are threads. Operations of a rank that overlap get further
// threads (lanes). All times are those of the clock of the node that was asked. Throws json::exception
// if a field is missing.
nlohmann::json trace_of(const nlohmann::json& answer);

}  // namespace hdt::ctl
