// explain_table.cc: the choice with its reason, then every candidate with its predicted time or the
// reason why it was left out. The chosen one is marked by a star.
#include "tools/hdtctl/explain_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tools/hdtctl/status_table.h"

namespace hdt::ctl {

namespace {

// Microseconds below a millisecond.
std::string time(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

}  // namespace

std::string explain_table(const nlohmann::json& all) {
  std::string text =
      fmt::format("{} in group {} (class {}): {} rank(s) on {} node(s)", all["call"].get<std::string>(),
                  all["group"].get<std::string>(), all["class"].get<std::string>(), all["ranks"].get<int>(),
                  all["nodes"].get<int>());
  if (all.contains("chunks")) {
    text += fmt::format(", {} chunk(s) of {}", all["chunks"].get<uint64_t>(),
                        bytes(all["chunk_bytes"].get<double>()));
  }
  text += fmt::format("\nconfigured: {}\npicked: {}\nwhy: {}\n", all["configured"].get<std::string>(),
                      all["picked"].is_null() ? "none" : all["picked"].get<std::string>(),
                      all["why"].get<std::string>());
  // A group of one node has no algorithms between nodes.
  if (all["candidates"].empty()) return text;
  text += all.contains("hand_over_s") ? fmt::format("\nalgorithms (with {} from rank to daemon and back):\n",
                                                    time(all["hand_over_s"].get<double>()))
                                      : "\nalgorithms:\n";
  for (const auto& candidate : all["candidates"]) {
    const auto name = candidate["algorithm"].get<std::string>();
    std::string remark = candidate.contains("predicted_s")
                             ? "predicted " + time(candidate["predicted_s"].get<double>())
                             : "possible";
    if (candidate.contains("left_out")) remark = "left out: " + candidate["left_out"].get<std::string>();
    text += fmt::format("{} {:<20} {}\n", name == all["picked"] ? " *" : "  ", name, remark);
  }
  return text;
}

}  // namespace hdt::ctl
