// explain_table.h: hdtctl explain: which algorithm a call takes, and why.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::ctl {

// The daemon's answer as text. Throws json::exception if a field has another type than expected.
std::string explain_table(const nlohmann::json& explanation);

}  // namespace hdt::ctl
