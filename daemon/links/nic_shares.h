// nic_shares.h: how the classes of an engine's links share its NICs (transports/link/nic_share.h). Every rail
// has a lane on its NIC, also if its class is alone there: another class may come later.
//
// Owner: LinkTable; the engine's thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "daemon/links/devices.h"
#include "daemon/links/link_settings.h"
#include "transports/link/nic_share.h"

namespace hdt::daemon {

class NicShares {
 public:
  // `devices` must outlive this object.
  NicShares(const Devices& devices, PolicyOfClass policy_of)
      : devices_(devices), policy_of_(std::move(policy_of)) {}

  // The part in the NIC of a new rail of this class. It refers to the NIC's share, which stays for the
  // engine's life.
  std::unique_ptr<transport::NicShare::Lane> lane(size_t device, const std::string& group_class);
  // Changes how classes share NICs, at once; set_policy() follows for each class that has links.
  void set_policies(PolicyOfClass policy_of) { policy_of_ = std::move(policy_of); }
  void set_policy(const std::string& group_class);
  // Whether a link waits for its turn on any NIC.
  bool anyone_waits() const;
  // Before links are asked again which of them want a turn.
  void forget_wishes();

 private:
  const Devices& devices_;
  PolicyOfClass policy_of_;
  // by address: several backends may use one NIC
  std::map<std::string, transport::NicShare> shares_;
};

}  // namespace hdt::daemon
