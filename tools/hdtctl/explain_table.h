// explain_table.h: why a call takes the algorithm that it takes, as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

std::string explain_table(const nlohmann::json& explanation);

}  // namespace hdt::ctl
