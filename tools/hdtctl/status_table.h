// status_table.h: a daemon's status as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

std::string status_table(const nlohmann::json& status);

}  // namespace hdt::ctl
