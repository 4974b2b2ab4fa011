// status_table.cc: the daemon in one line, then three paragraphs: sessions with the users' limits,
// groups with their nodes and local ranks, peers with their rails.
#include "tools/hdtctl/status_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/join.h"
#include "tools/hdtctl/json_fields.h"

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
  return join(list, ",", [](const nlohmann::json& rank) { return std::to_string(whole(rank)); });
}

// Sessions, groups and peers of other users are counted only. Root and the daemon's own user see all of
// them, and then there is no such count.
std::string of_others(const nlohmann::json& status, const char* what) {
  if (!status.contains("others")) return "";
  const auto count = number_of(status.at("others"), what);
  return count == 0 ? "" : fmt::format(", and {} of other users", count);
}

// The bytes of a rank's buffers, and the part that went without a copy. Counted by the rank, so any numbers.
std::string carried(const nlohmann::json& rank) {
  const double all = number_at(rank, "buffer_bytes");
  const double copied = number_at(rank, "copied_bytes");
  if (!(all > 0)) return "";
  return fmt::format(" of {}, {:.0f} % of it without copies", bytes(all),
                     100 * (1 - std::min(copied, all) / all));
}

std::string samples_of(const nlohmann::json& rank) {
  const double samples = number_at(rank, "samples");
  return samples > 0 ? fmt::format(", {:.0f} sample(s) in each step", samples) : "";
}

// The daemon's own use of resources. A field that is missing counts as 0.
std::string own_use(const nlohmann::json& use) {
  const auto number = [&](const char* key) { return number_of(use, key); };
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
  std::string text = fmt::format(
      "node {}: {}{}, pid {}, up {:.0f} s, socket {}, address {}\n", text_at(status, "node"),
      text_at(status, "software"), flag_at(status, "embedded") ? " (embedded)" : "", whole_at(status, "pid"),
      number_at(status, "uptime_s"), text_at(status, "socket"), text_at(status, "address"));
  if (status.contains("daemon")) text += own_use(status.at("daemon"));
  text +=
      fmt::format("\nsessions: {}{}\n", list_at(status, "sessions").size(), of_others(status, "sessions"));
  for (const auto& session : list_at(status, "sessions")) {
    text += fmt::format("  pid {:<8} uid {:<6} ranks {}\n", whole_at(session, "pid"),
                        whole_at(session, "uid"), whole_at(session, "ranks"));
  }
  // Each user's share of the limited resources; zeros are left out.
  for (const auto& user : list_at(status.at("limits"), "users")) {
    text += fmt::format("  uid {}{}:", whole_at(user, "uid"),
                        flag_at(user, "limited") ? "" : " (without limits)");
    for (const auto& [name, limit] : status.at("limits").at("each").items()) {
      const int64_t used = whole_at(user, name.c_str());
      if (used != 0) text += fmt::format(" {} {}/{}", name, used, whole(limit));
    }
    text += "\n";
  }
  text += fmt::format("\ngroups: {}{}\n", list_at(status, "groups").size(), of_others(status, "groups"));
  for (const auto& group : list_at(status, "groups")) {
    text += fmt::format("  {} class {:<10} {} rank(s) on {} node(s), user {}, {}\n", text_at(group, "id"),
                        text_at(group, "class"), whole_at(group, "ranks"), list_at(group, "nodes").size(),
                        ranks(group.at("users")), text_at(group, "state"));
    for (const auto& node : list_at(group, "nodes")) {
      text += fmt::format("    node {}: rank {}\n", text_at(node, "name"), ranks(node.at("ranks")));
    }
    // Ranks of this node.
    for (const auto& rank : list_at(group, "local")) {
      const int64_t pid = whole_at(rank, "pid");
      text += fmt::format("    rank {} here: pid {}, {} collective call(s){}{}{}\n", whole_at(rank, "rank"),
                          pid != 0 ? std::to_string(pid) : "not known", whole_at(rank, "calls"),
                          carried(rank), samples_of(rank), flag_at(rank, "departed") ? ", departed" : "");
    }
    if (group.contains("failure")) text += "    " + text_at(group, "failure") + "\n";
    if (group.contains("stays_for"))
      text += "    its ranks here have departed; " + text_at(group, "stays_for") + "\n";
  }
  text += fmt::format("\npeers: {}{}\n", list_at(status, "peers").size(), of_others(status, "peers"));
  for (const auto& peer : list_at(status, "peers")) {
    text += fmt::format("  node {} over {}: {}, class {}\n", text_at(peer, "node"), text_at(peer, "backend"),
                        text_at(peer, "state"), text_at(peer, "class"));
    for (const auto& rail : list_at(peer, "rails")) {
      text += fmt::format("    rail {} on {}: {} - {} {}: out {} ({}/s), in {} ({}/s)",
                          text_at(rail, "backend"), text_at(rail, "nic"), text_at(rail, "local"),
                          text_at(rail, "remote"), text_at(rail, "state"),
                          bytes(number_at(rail, "bytes_out")), bytes(number_at(rail, "mean_bytes_per_s_out")),
                          bytes(number_at(rail, "bytes_in")), bytes(number_at(rail, "mean_bytes_per_s_in")));
      // Only rails that were ever lost have more to say.
      if (const auto losses = whole_at(rail, "losses"); losses > 0) {
        text += fmt::format(", lost {} time(s), sent again {}, last: {}", losses,
                            bytes(number_at(rail, "bytes_resent")), text_at(rail, "last_error"));
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace hdt::ctl
