// backend_plan.h: which backends a node uses, on which of its NICs, for which class of groups: the
// configuration compared with what the machine has. Wrong configuration is refused here, naming what there
// is.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config.h"
#include "daemon/protocol/node.h"
#include "transports/module.h"
#include "transports/transport.h"

namespace hdt::daemon {

inline constexpr const char* kTcp = "tcp";
// In a class's list of backends: within a node, where no backend is needed.
inline constexpr const char* kSharedMemory = "shm";

// A NIC as one backend sees it. Engines open one device for each.
struct BackendNic {
  std::string backend;
  transport::DeviceInfo info;
  bool same_as(const BackendNic& other) const {
    return backend == other.backend && info.name == other.info.name && info.address == other.info.address;
  }
};

class BackendPlan {
 public:
  // kConfig: a backend, a NIC or an option that is not there.
  static Result<BackendPlan> make(const Config& config, std::vector<std::string> folders);

  // The NICs of another plan come first, as they stand there, used or not; those that it lacks behind them.
  Status keep_order(const std::vector<BackendNic>& first);
  // Of all classes; those of tcp, which control connections use, first.
  const std::vector<BackendNic>& nics() const { return nics_; }
  const std::vector<std::string>& folders() const { return folders_; }
  transport::BackendOptions options(const std::string& backend) const;
  // What the node tells others of itself for groups of this class: of its rail ends (by engine, each in the
  // order of nics()) those that the class may use, best backend first.
  std::vector<std::vector<RailEnd>> ends_for(const std::string& group_class,
                                             const std::vector<std::vector<RailEnd>>& ends) const;
  // Every backend there is a file for, also those that are not used: loads them, to see what they find.
  nlohmann::json report() const;

 private:
  struct Found {
    std::string library;  // "" for what is built in
    std::string path;
    std::string problem;                         // why it cannot be used; empty: it can
    bool wrong = false;                          // the problem is one of the configuration
    std::vector<transport::DeviceInfo> devices;  // all that it found
    std::vector<transport::DeviceInfo> chosen;   // those that [nics] selects
  };
  Found look(const std::string& backend) const;
  Status add_class(const std::string& name, const ClassConfig& policy);
  bool fits(const ClassConfig& policy, const transport::DeviceInfo& nic) const;
  std::vector<transport::DeviceInfo> choose(const std::string& backend,
                                            const std::vector<transport::DeviceInfo>& devices) const;
  // The network interface that has the address; "" if none has.
  std::string interface_of(const std::string& address) const;
  std::string available(const std::vector<std::string>& backends) const;

  Config config_;
  std::vector<std::string> folders_;
  std::vector<transport::DeviceInfo> interfaces_;
  std::map<std::string, Found> found_;
  std::vector<BackendNic> nics_;
};

// "mlx5_0 (10.0.0.1)"
std::string name_of(const transport::DeviceInfo& nic);

}  // namespace hdt::daemon
