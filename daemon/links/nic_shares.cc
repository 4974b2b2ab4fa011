// nic_shares.cc: see nic_shares.h.
#include "daemon/links/nic_shares.h"

#include <algorithm>

#include "base/clock.h"
#include "daemon/links/nics.h"

namespace hdt::daemon {

// The share that all rails over the same NIC have in common, whatever backend they belong to.
std::unique_ptr<transport::NicShare::Lane> NicShares::lane(size_t device, const std::string& group_class) {
  // Rails share a NIC by its first address: several backends may use the NIC, and it may have several
  // addresses. On loopback each address counts as a NIC.
  const auto& nics = devices_.nics();
  const auto named = [&](const std::string& backend, const std::string& name) {
    return std::find_if(nics.begin(), nics.end(), [&](const BackendNic& nic) {
      return nic.backend == backend && nic_of(nic.info.name) == nic_of(name);
    });
  };
  const auto same_address = std::find_if(nics.begin(), nics.end(), [&](const BackendNic& nic) {
    return nic.info.address == nics[device].info.address;
  });
  const bool loopback = transport::OwnAddresses().has(same_address->info.address);
  const auto first = loopback ? same_address : named(same_address->backend, same_address->info.name);
  transport::NicShare& share = shares_[first->info.address];
  share.describe(first->info.address, first->info.bits_per_second);
  // The policy is set again for each rail, as the class may be new on this NIC.
  share.set_policy(group_class, policy_of_(group_class));
  return std::make_unique<transport::NicShare::Lane>(share, group_class, now_ns());
}

void NicShares::set_policy(const std::string& group_class) {
  for (auto& [address, share] : shares_) share.set_policy(group_class, policy_of_(group_class));
}

// Cheap, as it is asked in every round. While nobody waits no turns are given.
bool NicShares::anyone_waits() const {
  return std::any_of(shares_.begin(), shares_.end(),
                     [](const auto& share) { return share.second.anyone_waits(); });
}

// Before each turn: links say anew whether they want one.
void NicShares::forget_wishes() {
  for (auto& [address, share] : shares_) share.forget_wishes();
}

}  // namespace hdt::daemon
