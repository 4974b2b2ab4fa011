// link_table.cc: a paragraph for each class and engine: the chosen backend (marked by a star), each
// candidate with its paths, and the rails that are up.
#include "tools/hdtctl/link_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

std::string link_table(const nlohmann::json& answer) {
  std::string text = fmt::format("node {} to node {}\n", text_at(answer, "node"), text_at(answer, "to"));
  for (const auto& choice : list_at(answer, "classes")) {
    text += fmt::format("\nclass {}, engine {}: {}; node {} dials\n", text_at(choice, "class"),
                        whole_at(choice, "engine"),
                        choice.at("chosen").is_null() ? "no link" : "over " + text_at(choice, "chosen"),
                        text_at(answer, flag_at(choice, "dials") ? "node" : "to"));
    for (const auto& candidate : list_at(choice, "candidates")) {
      text += fmt::format("{} {:<10} {}\n", candidate.at("backend") == choice.at("chosen") ? " *" : "  ",
                          text_at(candidate, "backend"), text_at(candidate, "result"));
      // The paths that this backend would use: NIC and address of both ends.
      for (const auto& rail : list_at(candidate, "rails")) {
        text += fmt::format("      {} ({}) - {} ({})\n", text_at(rail, "nic"), text_at(rail, "address"),
                            text_at(rail, "their_nic"), text_at(rail, "their_address"));
      }
    }
    for (const auto& rail : list_at(choice, "rails_up")) {
      text += fmt::format("   up: {} - {}\n", text_at(rail, "local"), text_at(rail, "remote"));
    }
  }
  return text;
}

}  // namespace hdt::ctl
