// status_table.h: hdtctl status: what a daemon has: sessions, groups, peers and rails.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::ctl {

// Bytes in a unit that people can read: "64.0 MiB".
std::string bytes(double value);

// The daemon's answer as text. Throws json::exception if a field has another type than expected.
std::string status_table(const nlohmann::json& status);

}  // namespace hdt::ctl
