// backend_plan.h: which backends a node uses, on which of its NICs, for which class of groups: the
// configuration compared with what the machine has. Wrong configuration is refused here, with a message
// that names what there is (docs/design/transports.md).
//
// Made by Control at the start and for each change of classes; a plain value afterwards. Engines open
// one device for each of nics().
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/config.h"
#include "daemon/protocol/node.h"
#include "transports/module.h"
#include "transports/transport.h"

namespace hdt::daemon {

inline constexpr const char* kTcp = "tcp";
// In a class's list of backends: ranks of one node, which need no backend.
inline constexpr const char* kSharedMemory = "shm";

// A NIC as one backend sees it.
struct BackendNic {
  std::string backend;
  transport::DeviceInfo info;
  // The same NIC and address, whatever else has changed, such as its speed.
  bool same_as(const BackendNic& other) const {
    return backend == other.backend && info.name == other.info.name && info.address == other.info.address;
  }
};

class BackendPlan {
 public:
  // Looks at the machine, loads the modules that the configuration names, and compares. `folders` are
  // where modules are. kConfig: a backend, a NIC or an option is not there, or the classes use too many
  // NICs. kSystem: tcp does not work. A backend that is configured and cannot be used is only logged,
  // unless a class cannot do without it.
  static Result<BackendPlan> make(const Config& config, std::vector<std::string> folders);

  // Puts the NICs `first` in front, as they are there, whether they are used or not, and new ones behind
  // them. So devices that engines have open keep their numbers when a class changes. kConfig: too many
  // in all.
  Status keep_order(const std::vector<BackendNic>& first);
  // The NICs of all classes. Those of tcp come first, since control connections use them.
  const std::vector<BackendNic>& nics() const { return nics_; }
  const std::vector<std::string>& folders() const { return folders_; }
  // The options of [backend.NAME]; empty if there are none.
  transport::BackendOptions options(const std::string& backend) const;
  // Where this node can be reached for groups of the class, in the form that other nodes get: by engine,
  // the ends that the class may use, the best backend first. `ends` are all ends by engine, in the order
  // of nics().
  std::vector<std::vector<RailEnd>> ends_for(const std::string& group_class,
                                             const std::vector<std::vector<RailEnd>>& ends) const;
  // For hdtctl backends: every backend for which there is a file, also those that are not used. Loads
  // them to find out what they find.
  nlohmann::json report() const;

 private:
  // The findings of a look at one backend.
  struct Found {
    std::string library;  // what it drives, with the version; "" for what is built in
    std::string path;
    std::string problem;                         // why it cannot be used; empty: it can
    bool wrong = false;                          // the problem is one of the configuration
    std::vector<transport::DeviceInfo> devices;  // all that it found
    std::vector<transport::DeviceInfo> chosen;   // those that [nics] selects
  };
  // Loads the backend and asks it for its NICs.
  Found look(const std::string& backend) const;
  // Checks that every backend and NIC of the class can be used. kConfig, naming the key and where it was
  // set.
  Status add_class(const std::string& name, const ClassConfig& policy);
  // The class may use this NIC, by its name, address or interface.
  bool fits(const ClassConfig& policy, const transport::DeviceInfo& nic) const;
  // The NICs that [nics] or a class selects.
  std::vector<transport::DeviceInfo> choose(const std::string& backend,
                                            const std::vector<transport::DeviceInfo>& devices) const;
  // The network interface that has the address; "" if none has.
  std::string interface_of(const std::string& address) const;
  // The NICs of these backends, in words.
  std::string available(const std::vector<std::string>& backends) const;

  Config config_;
  std::vector<std::string> folders_;
  // the network interfaces, as tcp finds them
  std::vector<transport::DeviceInfo> interfaces_;
  // by backend: those that the configuration names
  std::map<std::string, Found> found_;
  std::vector<BackendNic> nics_;
};

// "mlx5_0 (10.0.0.1)"
std::string name_of(const transport::DeviceInfo& nic);

}  // namespace hdt::daemon
