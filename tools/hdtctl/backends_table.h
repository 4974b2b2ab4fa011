// backends_table.h: which backends there are, and the NICs they can be used on, as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

std::string backends_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
