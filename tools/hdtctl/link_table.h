// link_table.h: hdtctl explain link: the candidates for the link to another node, and the choice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::ctl {

// The daemon's answer as text. Throws json::exception if a field has another type than expected.
std::string link_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
