// class_table.h: hdtctl class set: the settings that a class has after the change.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::ctl {

// The daemon's answer as text. Throws json::exception if a field has another type than expected.
std::string class_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
