// why_table.h: hdtctl why: a sentence for each group, made or being made, and what each of its ranks is
// doing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::ctl {

// The daemon's verdicts as text.
std::string why_table(const nlohmann::json& answer);

}  // namespace hdt::ctl
