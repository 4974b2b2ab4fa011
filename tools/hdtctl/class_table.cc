// class_table.cc: one sentence with the class's new settings.
#include "tools/hdtctl/class_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/join.h"
#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

namespace {

std::string list(const nlohmann::json& names) {
  return join(names, ", ", [](const nlohmann::json& name) { return name.get<std::string>(); });
}

}  // namespace

std::string class_table(const nlohmann::json& answer) {
  return fmt::format(
      "class {} on all nodes of its groups: backends {}; nics {}; algorithm {}; priority {}; weight {}\n",
      text_at(answer, "class"), list(answer.at("backends")), list(answer.at("nics")),
      text_at(answer, "algorithm"), text_at(answer, "priority"), whole_at(answer, "weight"));
}

}  // namespace hdt::ctl
