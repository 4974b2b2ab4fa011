// status_table.cc: the daemon in one line, then three paragraphs: sessions with the users' limits,
// groups with their nodes and local ranks, peers with their rails.
#include "tools/hdtctl/status_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/join.h"

namespace hdt::ctl {

std::string bytes(double value) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", value) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

namespace {

// Numbers with commas between.
std::string ranks(const nlohmann::json& list) {
  return join(list, ",", [](const nlohmann::json& rank) { return std::to_string(rank.get<int64_t>()); });
}

// Sessions, groups and peers of other users are counted only. Root and the daemon's own user see all of
// them, and then there is no such count.
std::string of_others(const nlohmann::json& status, const char* what) {
  if (!status.contains("others")) return "";
  const auto count = status["others"].value(what, uint64_t{0});
  return count == 0 ? "" : fmt::format(", and {} of other users", count);
}

// The daemon's own use of resources. A field that is missing counts as 0.
std::string own_use(const nlohmann::json& use) {
  const auto number = [&](const char* key) { return use.value(key, uint64_t{0}); };
  const auto size = [&](const char* key) { return bytes(static_cast<double>(number(key))); };
  return fmt::format(
      "daemon: {} of {} descriptors, {} port(s) listening and {} connected, {} thread(s), {} of memory, {} "
      "shared memories "
      "of {}, {} session(s), {} group(s)\n",
      number("descriptors"), number("descriptors_allowed"), number("ports_listening"),
      number("ports_connected"), number("threads"), size("memory_bytes"), number("shared_memories"),
      size("shared_bytes"), number("sessions"), number("groups"));
}

}  // namespace

std::string status_table(const nlohmann::json& status) {
  std::string text = fmt::format("node {}: {}{}, pid {}, up {:.0f} s, socket {}, address {}\n",
                                 status["node"].get<std::string>(), status["software"].get<std::string>(),
                                 status["embedded"].get<bool>() ? " (embedded)" : "",
                                 status["pid"].get<int>(), status["uptime_s"].get<double>(),
                                 status["socket"].get<std::string>(), status["address"].get<std::string>());
  if (status.contains("daemon")) text += own_use(status["daemon"]);
  text += fmt::format("\nsessions: {}{}\n", status["sessions"].size(), of_others(status, "sessions"));
  for (const auto& session : status["sessions"]) {
    text += fmt::format("  pid {:<8} uid {:<6} ranks {}\n", session["pid"].get<int>(),
                        session["uid"].get<int>(), session["ranks"].get<int>());
  }
  // Each user's share of the limited resources; zeros are left out.
  for (const auto& user : status["limits"]["users"]) {
    text += fmt::format("  uid {}{}:", user["uid"].get<int64_t>(),
                        user["limited"].get<bool>() ? "" : " (without limits)");
    for (const auto& [name, limit] : status["limits"]["each"].items()) {
      const auto used = user[name].get<int64_t>();
      if (used != 0) text += fmt::format(" {} {}/{}", name, used, limit.get<int64_t>());
    }
    text += "\n";
  }
  text += fmt::format("\ngroups: {}{}\n", status["groups"].size(), of_others(status, "groups"));
  for (const auto& group : status["groups"]) {
    text += fmt::format("  {} class {:<10} {} rank(s) on {} node(s), user {}, {}\n",
                        group["id"].get<std::string>(), group["class"].get<std::string>(),
                        group["ranks"].get<int>(), group["nodes"].size(), ranks(group["users"]),
                        group["state"].get<std::string>());
    for (const auto& node : group["nodes"]) {
      text += fmt::format("    node {}: rank {}\n", node["name"].get<std::string>(), ranks(node["ranks"]));
    }
    // Ranks of this node.
    for (const auto& rank : group["local"]) {
      const int pid = rank["pid"].get<int>();
      text += fmt::format("    rank {} here: pid {}, {} collective call(s){}\n", rank["rank"].get<int>(),
                          pid != 0 ? std::to_string(pid) : "not known", rank["calls"].get<uint64_t>(),
                          rank["left"].get<bool>() ? ", left" : "");
    }
    if (group.contains("failure")) text += "    " + group["failure"].get<std::string>() + "\n";
    if (group.contains("stays_for"))
      text += "    its ranks here have left; " + group["stays_for"].get<std::string>() + "\n";
  }
  text += fmt::format("\npeers: {}{}\n", status["peers"].size(), of_others(status, "peers"));
  for (const auto& peer : status["peers"]) {
    text += fmt::format("  node {} over {}: {}, class {}\n", peer["node"].get<std::string>(),
                        peer["backend"].get<std::string>(), peer["state"].get<std::string>(),
                        peer["class"].get<std::string>());
    for (const auto& rail : peer["rails"]) {
      text += fmt::format(
          "    rail {} on {}: {} - {} {}: out {} ({}/s), in {} ({}/s)", rail["backend"].get<std::string>(),
          rail["nic"].get<std::string>(), rail["local"].get<std::string>(), rail["remote"].get<std::string>(),
          rail["state"].get<std::string>(), bytes(rail["bytes_out"].get<double>()),
          bytes(rail["mean_bytes_per_s_out"].get<double>()), bytes(rail["bytes_in"].get<double>()),
          bytes(rail["mean_bytes_per_s_in"].get<double>()));
      // Only rails that were ever lost have more to say.
      if (const auto losses = rail["losses"].get<uint64_t>(); losses > 0) {
        text += fmt::format(", lost {} time(s), sent again {}, last: {}", losses,
                            bytes(rail["bytes_resent"].get<double>()), rail["last_error"].get<std::string>());
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace hdt::ctl
