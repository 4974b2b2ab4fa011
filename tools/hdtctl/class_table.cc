// class_table.cc: one sentence with the class's new settings.
#include "tools/hdtctl/class_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/join.h"

namespace hdt::ctl {

namespace {

std::string list(const nlohmann::json& names) {
  return join(names, ", ", [](const nlohmann::json& name) { return name.get<std::string>(); });
}

}  // namespace

std::string class_table(const nlohmann::json& answer) {
  return fmt::format(
      "class {} on all nodes of its groups: backends {}; nics {}; algorithm {}; priority {}; weight {}\n",
      answer["class"].get<std::string>(), list(answer["backends"]), list(answer["nics"]),
      answer["algorithm"].get<std::string>(), answer["priority"].get<std::string>(),
      answer["weight"].get<int>());
}

}  // namespace hdt::ctl
