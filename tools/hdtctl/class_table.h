// class_table.h: the daemon's answer to a change of a class, as a person reads it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

std::string class_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
