// link_table.cc: a paragraph for each class and engine: the chosen backend (marked by a star), each
// candidate with its paths, and the rails that are up.
#include "tools/hdtctl/link_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace hdt::ctl {

std::string link_table(const nlohmann::json& answer) {
  std::string text =
      fmt::format("node {} to node {}\n", answer["node"].get<std::string>(), answer["to"].get<std::string>());
  for (const auto& choice : answer["classes"]) {
    text +=
        fmt::format("\nclass {}, engine {}: {}; node {} dials\n", choice["class"].get<std::string>(),
                    choice["engine"].get<int>(),
                    choice["chosen"].is_null() ? "no link" : "over " + choice["chosen"].get<std::string>(),
                    (choice["dials"].get<bool>() ? answer["node"] : answer["to"]).get<std::string>());
    for (const auto& candidate : choice["candidates"]) {
      text += fmt::format("{} {:<10} {}\n", candidate["backend"] == choice["chosen"] ? " *" : "  ",
                          candidate["backend"].get<std::string>(), candidate["result"].get<std::string>());
      // The paths that this backend would use: NIC and address of both ends.
      for (const auto& rail : candidate["rails"]) {
        text += fmt::format("      {} ({}) - {} ({})\n", rail["nic"].get<std::string>(),
                            rail["address"].get<std::string>(), rail["their_nic"].get<std::string>(),
                            rail["their_address"].get<std::string>());
      }
    }
    for (const auto& rail : choice["rails_up"]) {
      text += fmt::format("   up: {} - {}\n", rail["local"].get<std::string>(),
                          rail["remote"].get<std::string>());
    }
  }
  return text;
}

}  // namespace hdt::ctl
