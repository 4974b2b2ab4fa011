// class_sections.cc: replaces the NIC kinds of the plan's classes by the NICs that hdtcommd knows, and
// writes both forms.
#include "training/plan/output/class_sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "training/plan/describe/toml_fields.h"
#include "training/plan/output/plan_export.h"

namespace hdt::plan {
namespace {

// The NICs of a class as hdtcommd names them: those of its NIC kinds, in the cluster's order, each once.
std::vector<std::string> interfaces_of(const ClassConfig& settings, const Cluster& cluster) {
  const bool all = std::ranges::count(settings.nics, "*") > 0;
  std::vector<std::string> interfaces;
  for (const NicKind& nic : cluster.nics) {
    if (!all && std::ranges::count(settings.nics, nic.name) == 0) continue;
    for (const std::string& name : nic.interfaces) {
      if (std::ranges::count(interfaces, name) == 0) interfaces.push_back(name);
    }
  }
  return interfaces;
}

}  // namespace

std::string class_sections(const Plan& plan, const Cluster& cluster) {
  std::string text;
  for (const auto& [name, settings] : plan.classes) {
    const std::vector<std::string> interfaces = interfaces_of(settings, cluster);
    // The command is a comment in TOML, so the whole text is a configuration file.
    text += fmt::format("{}# while jobs run: hdtctl class set {} {} {} algorithm={} priority={} weight={}\n",
                        text.empty() ? "" : "\n", name,
                        shell_word(fmt::format("backends={}", fmt::join(settings.backends, ","))),
                        shell_word(fmt::format("nics={}", fmt::join(interfaces, ","))), settings.algorithm,
                        settings.priority, settings.weight);
    text += fmt::format("[class.{}]\nbackends = {}\nnics = {}\nalgorithm = {}\npriority = {}\nweight = {}\n",
                        name, quoted_list(settings.backends), quoted_list(interfaces),
                        in_quotes(settings.algorithm), in_quotes(settings.priority), settings.weight);
  }
  return text;
}

}  // namespace hdt::plan
