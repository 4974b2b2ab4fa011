// why_table.h: verdicts as text for people: a sentence for each group, made or being made, and what each rank
// does.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

std::string why_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
