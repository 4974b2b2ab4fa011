// link_table.h: the candidates for the link to another node, and the choice, as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

std::string link_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
