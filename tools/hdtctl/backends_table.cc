// backends_table.cc: one paragraph for each backend, one line for each of its NICs.
#include "tools/hdtctl/backends_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/join.h"
#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

namespace {

// The interface is named if it is called otherwise than the NIC, as with rdma ("mlx5_0 on eth1").
std::string nic_line(const nlohmann::json& nic) {
  std::string text = fmt::format("    {:<12} {:<16}", text_at(nic, "name"), text_at(nic, "address"));
  if (const double rate = number_at(nic, "bits_per_s"); rate > 0)
    text += fmt::format(" {:g} Gbit/s", rate / 1e9);
  const auto interface = text_at(nic, "interface");
  if (!interface.empty() && interface != text_at(nic, "name")) text += " on " + interface;
  if (!flag_at(nic, "up")) return text + " down\n";
  return text + (flag_at(nic, "selected") ? " selected\n" : " left out by [nics]\n");
}

}  // namespace

std::string backends_table(const nlohmann::json& answer) {
  std::string text = fmt::format("node {}\n", text_at(answer, "node"));
  for (const auto& backend : list_at(answer, "backends")) {
    const auto problem = text_at(backend, "problem");
    const auto library = text_at(backend, "library");
    text += fmt::format("\n{}: {}{}\n", text_at(backend, "name"),
                        problem.empty() ? "usable" : "not usable: " + problem,
                        library.empty() ? "" : " (" + library + ")");
    const std::string classes = join(backend.at("classes"), ", ", [](const nlohmann::json& group_class) {
      return group_class.get<std::string>();
    });
    text += "  classes: " + (classes.empty() ? "none" : classes) + "\n";
    for (const auto& nic : list_at(backend, "nics")) text += nic_line(nic);
  }
  // The folders help with a module that is missing above.
  text += "\nmodules are looked for in:\n";
  for (const auto& folder : list_at(answer, "folders")) text += "  " + folder.get<std::string>() + "\n";
  return text;
}

}  // namespace hdt::ctl
