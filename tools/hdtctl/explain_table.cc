// explain_table.cc: the choice with its reason, then every candidate with its predicted time or the
// reason why it was left out. The chosen one is marked by a star.
#include "tools/hdtctl/explain_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tools/hdtctl/json_fields.h"
#include "tools/hdtctl/status_table.h"

namespace hdt::ctl {

namespace {

// Microseconds below a millisecond.
std::string time(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

}  // namespace

std::string explain_table(const nlohmann::json& all) {
  std::string text = fmt::format("{} in group {} (class {}): {} rank(s) on {} node(s)", text_at(all, "call"),
                                 text_at(all, "group"), text_at(all, "class"), whole_at(all, "ranks"),
                                 whole_at(all, "nodes"));
  if (all.contains("chunks")) {
    text += fmt::format(", {} chunk(s) of {}", whole_at(all, "chunks"), bytes(number_at(all, "chunk_bytes")));
  }
  text += fmt::format("\nconfigured: {}\npicked: {}\nwhy: {}\n", text_at(all, "configured"),
                      all.at("picked").is_null() ? "none" : text_at(all, "picked"), text_at(all, "why"));
  if (all.contains("owned")) {
    text += "parts that the nodes combine, by the rates of links and memory:\n";
    for (const auto& node : list_at(all, "owned")) {
      text += fmt::format("   {:<20} {:>5.1f} %, links {}/s, combines {}/s", text_at(node, "node"),
                          100 * number_at(node, "part"), bytes(number_at(node, "link_bytes_s")),
                          bytes(number_at(node, "combine_bytes_s")));
      if (node.contains("local_bytes_s"))
        text += fmt::format(", its ranks {}/s", bytes(number_at(node, "local_bytes_s")));
      text += "\n";
    }
    const auto& slowest = all.at("equal_parts_wait_for");
    text += fmt::format("with equal parts: {}, as all wait for the {} of {}\n",
                        time(number_at(all, "equal_parts_s")), text_at(slowest, "of_it"),
                        text_at(slowest, "node"));
  }
  // A group of one node has no algorithms between nodes.
  if (list_at(all, "candidates").empty()) return text;
  text += all.contains("hand_over_s") ? fmt::format("\nalgorithms (with {} from rank to daemon and back):\n",
                                                    time(number_at(all, "hand_over_s")))
                                      : "\nalgorithms:\n";
  for (const auto& candidate : list_at(all, "candidates")) {
    const auto name = text_at(candidate, "algorithm");
    std::string remark = candidate.contains("predicted_s")
                             ? "predicted " + time(number_at(candidate, "predicted_s"))
                             : "possible";
    if (candidate.contains("left_out")) remark = "left out: " + text_at(candidate, "left_out");
    text += fmt::format("{} {:<20} {}\n", candidate.at("algorithm") == all.at("picked") ? " *" : "  ", name,
                        remark);
  }
  return text;
}

}  // namespace hdt::ctl
