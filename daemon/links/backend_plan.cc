// The configuration compared with the machine.
#include "daemon/links/backend_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/join.h"
#include "base/log.h"
#include "daemon/links/nics.h"
#include "transports/loader/loader.h"
#include "transports/net/subnet.h"

namespace hdt::daemon {

namespace {

using transport::DeviceInfo;

// "eth0 (10.0.0.1), eth1 (10.0.1.1)", or "none".
std::string list_of(const std::vector<DeviceInfo>& nics) {
  return nics.empty() ? "none" : join(nics, ", ", [](const DeviceInfo& nic) { return name_of(nic); });
}

// The default of a class. It asks for whatever there is, so a backend without a NIC is no mistake then.
bool is_pattern_of_all(const std::vector<std::string>& patterns) {
  return std::find(patterns.begin(), patterns.end(), "*") != patterns.end();
}

}  // namespace

// For messages: people look for the name, and the address tells two of that name apart.
std::string name_of(const DeviceInfo& nic) { return nic.name + " (" + nic.address + ")"; }

// Every backend that the configuration names is loaded and looked at, but only those of classes are
// used: options of an unused backend must be right as well.
Result<BackendPlan> BackendPlan::make(const Config& config, std::vector<std::string> folders) {
  BackendPlan plan;
  plan.config_ = config;
  plan.folders_ = std::move(folders);
  // 1. The interfaces, by which the NICs of other backends are recognised.
  const auto tcp = transport::make_tcp_backend();
  auto interfaces = tcp->discover();
  if (!interfaces.is_ok()) return interfaces.status();
  plan.interfaces_ = interfaces.take();
  // 2. The backends that classes or options name. tcp is always there, for control connections.
  // Sorted, so that each start opens the backends in the same order, and the devices get the same
  // numbers.
  std::set<std::string> wanted;
  for (const auto& [name, policy] : config.classes)
    wanted.insert(policy.backends.begin(), policy.backends.end());
  for (const auto& [name, options] : config.backends) wanted.insert(name);  // its options are checked, too
  wanted.erase(kSharedMemory);
  wanted.insert(kTcp);
  for (const std::string& backend : wanted) {
    Found found = plan.look(backend);
    if (found.wrong) return Status(Code::kConfig, found.problem);
    if (!found.problem.empty() && backend == kTcp) return Status(Code::kSystem, found.problem);
    if (!found.problem.empty()) HDT_LOG_WARN("{}", found.problem);
    plan.found_.emplace(backend, std::move(found));
  }
  // 3. Each class on what was found.
  std::set<std::string> used{kTcp};
  for (const auto& [name, policy] : config.classes) {
    HDT_RETURN_IF_ERROR(plan.add_class(name, policy));
    used.insert(policy.backends.begin(), policy.backends.end());
  }
  // 4. The NICs of all classes, tcp first.
  for (const DeviceInfo& nic : plan.found_.at(kTcp).chosen) plan.nics_.push_back({kTcp, nic});
  for (const auto& [backend, found] : plan.found_) {
    if (backend == kTcp || !used.contains(backend)) continue;
    for (const DeviceInfo& nic : found.chosen) plan.nics_.push_back({backend, nic});
  }
  HDT_RETURN_IF_ERROR(plan.keep_order({}));
  return plan;
}

// Positions are the numbers of devices, and engines never close a device.
// Engines compute the numbers of devices from this order, and so must the plan after a change of classes.
Status BackendPlan::keep_order(const std::vector<BackendNic>& first) {
  std::vector<BackendNic> all = first;
  for (const BackendNic& nic : nics_) {
    const bool known =
        std::any_of(first.begin(), first.end(), [&](const BackendNic& other) { return nic.same_as(other); });
    if (!known) all.push_back(nic);
  }
  nics_ = std::move(all);
  if (nics_.size() > kMaxRails) {
    return {Code::kConfig, "the classes use " + std::to_string(nics_.size()) +
                               " NICs (each counts once for " + "every backend on it); at most " +
                               std::to_string(kMaxRails) +
                               " are possible: leave some out with nics.use, nics.exclude or a class's nics"};
  }
  return Status::ok();
}

// Texts that only the backend understands; it refuses those that it does not know.
transport::BackendOptions BackendPlan::options(const std::string& backend) const {
  const auto found = config_.backends.find(backend);
  return found == config_.backends.end() ? transport::BackendOptions{} : found->second;
}

// Loads a backend and asks it what is there. `wrong` separates mistakes in the configuration, which stop
// the daemon, from what this machine lacks, which only keeps the backend from being used.
BackendPlan::Found BackendPlan::look(const std::string& backend) const {
  Found found;
  // 1. The module. A name without a file is a mistake in the configuration; a file that cannot be loaded
  //    may lack a library here.
  if (backend != kTcp) {
    const auto module = transport::load_module(backend, folders_);
    if (!module.is_ok()) {
      found.problem = module.status().message();
      const auto files = transport::find_modules(folders_);
      found.wrong = std::find(files.begin(), files.end(), backend) == files.end();
      return found;
    }
    found.path = module.value().path;
    found.library = module.value().library;
  }
  // 2. The backend with its options.
  const auto made = transport::make_backend(backend, options(backend), folders_);
  if (!made.is_ok()) {
    found.problem = made.status().message();
    found.wrong = made.status().code() == Code::kConfig;
    return found;
  }
  // 3. Its NICs, and those of them that [nics] selects.
  auto devices = made.value()->discover();
  if (!devices.is_ok()) {
    found.problem = "backend " + backend + ": " + devices.status().message();
    return found;
  }
  found.devices = devices.take();
  if (backend == kTcp) {
    auto chosen = select_nics(config_.nics, *made.value());
    if (chosen.is_ok()) found.chosen = chosen.take();
    if (!chosen.is_ok()) found.problem = chosen.status().message();
    return found;
  }
  found.chosen = choose(backend, found.devices);
  if (found.chosen.empty()) {
    found.problem = "backend " + backend + ": it finds " +
                    (found.devices.empty()
                         ? "no NIC"
                         : "no NIC that is up and selected by [nics]; it has " + list_of(found.devices));
  }
  return found;
}

// Selected by [nics]: by name or interface, or by address if addresses are listed. Whatever a class
// names is selected, too.
std::vector<DeviceInfo> BackendPlan::choose(const std::string& backend,
                                            const std::vector<DeviceInfo>& devices) const {
  std::vector<DeviceInfo> chosen;
  const auto named = [&](const DeviceInfo& nic) {
    return std::any_of(config_.classes.begin(), config_.classes.end(), [&](const auto& entry) {
      const ClassConfig& policy = entry.second;
      const auto has = [](const std::vector<std::string>& list, const std::string& text) {
        return std::find(list.begin(), list.end(), text) != list.end();
      };
      return has(policy.backends, backend) && (has(policy.nics, nic.name) || has(policy.nics, nic.address));
    });
  };
  for (const DeviceInfo& nic : devices) {
    if (!nic.up) continue;
    const std::string interface = interface_of(nic.address);
    const bool selected = config_.nics.addresses.empty()
                              ? nic_selected(config_.nics, nic.name) &&
                                    (interface.empty() || nic_selected(config_.nics, interface))
                              : matches_any(config_.nics.addresses, nic.address);
    if (selected || named(nic)) chosen.push_back(nic);
  }
  if (!chosen.empty()) return chosen;
  // The listed addresses may be those of an interface that has many, such as loopback, of which the
  // backend knows only one. It is given ours.
  for (const std::string& address : config_.nics.addresses) {
    for (DeviceInfo nic : devices) {
      if (!nic.up || nic.prefix_bits == 0 || !transport::in_subnet(nic, address)) continue;
      nic.address = address;
      chosen.push_back(nic);
      break;
    }
  }
  return chosen;
}

// A NIC of a backend and an interface are taken for the same thing if they have the same address: "mlx5_0"
// and "ib0", for example.
std::string BackendPlan::interface_of(const std::string& address) const {
  const auto found = std::find_if(interfaces_.begin(), interfaces_.end(),
                                  [&](const DeviceInfo& interface) { return interface.address == address; });
  return found == interfaces_.end() ? "" : found->name;
}

// By name, by address, or by the name of the interface that has the same address: users write what they
// see, which differs between backends.
bool BackendPlan::fits(const ClassConfig& policy, const DeviceInfo& nic) const {
  return matches_any(policy.nics, nic.name) || matches_any(policy.nics, nic.address) ||
         matches_any(policy.nics, interface_of(nic.address));
}

// For messages: what the backends that the class names have to offer.
std::string BackendPlan::available(const std::vector<std::string>& backends) const {
  std::string text;
  for (const std::string& backend : backends) {
    const auto found = found_.find(backend);
    if (found == found_.end()) continue;
    text += (text.empty() ? "" : "; ") + backend + ": " + list_of(found->second.chosen);
  }
  return text;
}

// A class is refused if one of its patterns fits no NIC, if one of its backends has no NIC of those that
// it names, or if none of its backends can be used.
Status BackendPlan::add_class(const std::string& name, const ClassConfig& policy) {
  // Names the key, the place where it was set, and what there is.
  const auto wrong = [&](const std::string& key, const std::string& what) {
    const auto origin = config_.origins.find("class." + name + "." + key);
    return Status(Code::kConfig, (origin == config_.origins.end() ? "" : origin->second + ": ") + "class." +
                                     name + "." + key + ": " + what + " (" + available(policy.backends) +
                                     ")");
  };
  // 1. Every pattern must fit some NIC of the class's backends.
  bool usable = policy.backends == std::vector<std::string>{kSharedMemory};
  for (const std::string& pattern : policy.nics) {
    const ClassConfig alone{policy.backends, {pattern}, ""};
    const bool matched =
        pattern == "*" || usable ||
        std::any_of(policy.backends.begin(), policy.backends.end(), [&](const std::string& backend) {
          const auto found = found_.find(backend);
          return found != found_.end() &&
                 std::any_of(found->second.chosen.begin(), found->second.chosen.end(),
                             [&](const DeviceInfo& nic) { return fits(alone, nic); });
        });
    if (!matched) return wrong("nics", "no NIC of its backends fits \"" + pattern + "\"");
  }
  // 2. Each backend must have a NIC. With "*" a backend without one is passed over.
  for (const std::string& backend : policy.backends) {
    if (backend == kSharedMemory) continue;
    const Found& found = found_.at(backend);
    const bool fitting = std::any_of(found.chosen.begin(), found.chosen.end(),
                                     [&](const DeviceInfo& nic) { return fits(policy, nic); });
    usable |= fitting;
    if (fitting || is_pattern_of_all(policy.nics)) continue;
    return wrong("nics", "backend " + backend + " cannot be used on these NICs" +
                             (found.problem.empty() ? "" : ": " + found.problem));
  }
  if (!usable) return wrong("backends", "none of them can be used here");
  return Status::ok();
}

// The order of the answer is that of preference: the class's backends in turn, each with its NICs in
// order.
std::vector<std::vector<RailEnd>> BackendPlan::ends_for(const std::string& group_class,
                                                        const std::vector<std::vector<RailEnd>>& ends) const {
  const ClassConfig policy = config_.class_named(group_class);
  std::vector<std::vector<RailEnd>> chosen(ends.size());
  for (size_t engine = 0; engine < ends.size(); ++engine) {
    for (const std::string& backend : policy.backends) {
      for (size_t nic = 0; nic < nics_.size(); ++nic) {
        if (nics_[nic].backend == backend && fits(policy, nics_[nic].info))
          chosen[engine].push_back(ends[engine][nic]);
      }
    }
  }
  return chosen;
}

// Backends that the configuration does not name are looked at here only.
nlohmann::json BackendPlan::report() const {
  std::vector<std::string> names = transport::find_modules(folders_);
  names.insert(names.begin(), kTcp);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& name : names) {
    const auto known = found_.find(name);
    const Found found = known != found_.end() ? known->second : look(name);
    nlohmann::json entry = {
        {"name", name}, {"library", found.library}, {"path", found.path}, {"problem", found.problem}};
    entry["classes"] = nlohmann::json::array();
    for (const auto& [group_class, policy] : config_.classes) {
      const auto& list = policy.backends;
      if (std::find(list.begin(), list.end(), name) != list.end()) entry["classes"].push_back(group_class);
    }
    if (name == kTcp && !config_.classes.contains("default")) entry["classes"].push_back("every other");
    entry["nics"] = nlohmann::json::array();
    // Selected NICs may have another address than the one that was found (choose()).
    std::vector<DeviceInfo> nics = found.chosen;
    for (const DeviceInfo& nic : found.devices) {
      const bool listed = std::any_of(nics.begin(), nics.end(), [&](const DeviceInfo& other) {
        return other.name == nic.name && other.address == nic.address;
      });
      if (!listed) nics.push_back(nic);
    }
    for (size_t i = 0; i < nics.size(); ++i) {
      entry["nics"].push_back({{"name", nics[i].name},
                               {"address", nics[i].address},
                               {"interface", interface_of(nics[i].address)},
                               {"bits_per_s", nics[i].bits_per_second},
                               {"up", nics[i].up},
                               {"selected", i < found.chosen.size()}});
    }
    all.push_back(entry);
  }
  return all;
}

}  // namespace hdt::daemon
