// status_table.h: a daemon's status as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

// "64.0 MiB"
std::string bytes(double value);

std::string status_table(const nlohmann::json& status);

}  // namespace hdt::ctl
