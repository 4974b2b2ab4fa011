// why_table.cc: for each verdict its sentence, a row for each rank, and the state of the links to other
// nodes.
#include "tools/hdtctl/why_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

namespace {

// A rank's state in words: how it ended, that it has departed, the call that it is in, or the last one
// it made.
std::string doing(const nlohmann::json& row) {
  if (const std::string end = text_of(row, "end"); !end.empty()) return end;
  if (flag_of(row, "departed")) return "has departed";
  if (const std::string in = text_of(row, "in"); !in.empty()) {
    return fmt::format("in {} for {:.1f} s{}", in, row.value("in_s", 0.0),
                       flag_of(row, "others_there") ? "" : ", waits for others");
  }
  const std::string last = text_of(row, "last");
  return last.empty() ? "has called nothing"
                      : fmt::format("ended {} {:.1f} s ago", last, row.value("last_ended_s", 0.0));
}

}  // namespace

std::string why_table(const nlohmann::json& answer) {
  std::string text;
  // A group that is being made has a sentence only.
  if (answer.contains("making")) {
    for (const auto& group : list_at(answer, "making")) text += text_of(group, "sentence") + "\n";
  }
  for (const auto& verdict : list_at(answer, "verdicts")) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", text_of(verdict, "sentence"));
    text += fmt::format("  group {} class {}\n", text_of(verdict, "group"), text_of(verdict, "class"));
    text += "   rank  node         pid      state  calls  doing\n";
    for (const auto& row : list_at(verdict, "table")) {
      const std::string state = text_of(row, "process");
      text += fmt::format("  {:>5}  {:<12} {:<8} {:<6} {:<6} {}\n", number_of(row, "rank"),
                          text_of(row, "node"), number_of(row, "pid"), state.empty() ? "-" : state,
                          number_of(row, "calls"), doing(row));
    }
    for (const auto& peer : list_at(verdict, "peers")) {
      const double quiet = peer.value("quiet_s", -1.0);
      text += fmt::format("  node {} with node {}: {}, chunks out {}, in {}{}\n", text_of(peer, "node"),
                          text_of(peer, "peer"), flag_of(peer, "linked") ? "linked" : "no link",
                          number_of(peer, "chunks_out"), number_of(peer, "chunks_in"),
                          quiet < 0 ? "" : fmt::format(", the last {:.1f} s ago", quiet));
    }
  }
  // Groups of other users are counted only.
  const auto hidden = number_of(answer, "hidden");
  if (text.empty()) {
    text = fmt::format("nothing to do: node {} has no group{}\n", text_of(answer, "node"),
                       hidden == 0 ? "" : " of yours");
  }
  if (hidden != 0) text += fmt::format("and {} group(s) of other users\n", hidden);
  // Nodes whose ranks are missing above.
  for (const auto& node : list_at(answer, "silent")) {
    text += fmt::format("node {} does not answer: {}\n", text_of(node, "node"), text_of(node, "why"));
  }
  return text;
}

}  // namespace hdt::ctl
