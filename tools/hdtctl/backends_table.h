// backends_table.h: hdtctl backends: which backends there are, and on which NICs they can be used.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::ctl {

// The daemon's answer as text. Throws json::exception if a field has another type than expected.
std::string backends_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
