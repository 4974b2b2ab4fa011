// backends_table.cc: one paragraph for each backend, one line for each of its NICs.
#include "tools/hdtctl/backends_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/join.h"

namespace hdt::ctl {

namespace {

// The interface is named if it is called otherwise than the NIC, as with rdma ("mlx5_0 on eth1").
std::string nic_line(const nlohmann::json& nic) {
  std::string text =
      fmt::format("    {:<12} {:<16}", nic["name"].get<std::string>(), nic["address"].get<std::string>());
  if (const double rate = nic["bits_per_s"].get<double>(); rate > 0)
    text += fmt::format(" {:g} Gbit/s", rate / 1e9);
  const auto interface = nic["interface"].get<std::string>();
  if (!interface.empty() && interface != nic["name"]) text += " on " + interface;
  if (!nic["up"].get<bool>()) return text + " down\n";
  return text + (nic["selected"].get<bool>() ? " selected\n" : " left out by [nics]\n");
}

}  // namespace

std::string backends_table(const nlohmann::json& answer) {
  std::string text = fmt::format("node {}\n", answer["node"].get<std::string>());
  for (const auto& backend : answer["backends"]) {
    const auto problem = backend["problem"].get<std::string>();
    const auto library = backend["library"].get<std::string>();
    text += fmt::format("\n{}: {}{}\n", backend["name"].get<std::string>(),
                        problem.empty() ? "usable" : "not usable: " + problem,
                        library.empty() ? "" : " (" + library + ")");
    const std::string classes = join(backend["classes"], ", ", [](const nlohmann::json& group_class) {
      return group_class.get<std::string>();
    });
    text += "  classes: " + (classes.empty() ? "none" : classes) + "\n";
    for (const auto& nic : backend["nics"]) text += nic_line(nic);
  }
  // The folders help with a module that is missing above.
  text += "\nmodules are looked for in:\n";
  for (const auto& folder : answer["folders"]) text += "  " + folder.get<std::string>() + "\n";
  return text;
}

}  // namespace hdt::ctl
