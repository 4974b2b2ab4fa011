// trace_file.h: recorded operations as a trace in Chrome's JSON format, which Perfetto (ui.perfetto.dev) and
// chrome://tracing show.
#pragma once

#include <nlohmann/json.hpp>

namespace hdt::ctl {

// Nodes are processes of the trace, ranks threads; operations of a rank that overlap take lanes of their own.
// All times are those of the node that was asked.
nlohmann::json trace_of(const nlohmann::json& answer);

}  // namespace hdt::ctl
