#include "daemon/group/link_part.h"

#include <algorithm>
#include <cmath>

namespace hdt::daemon {

namespace {

using transport::RailStatus;

constexpr uint64_t kBitsOfAMbit = 1'000'000;

// The nominal speeds of these NICs together in Mbit/s, by name; 0: some speed is not known.
uint32_t mbits_of(const std::map<std::string, uint64_t>& bits_per_second) {
  uint64_t sum = 0;
  for (const auto& [nic, bits] : bits_per_second) {
    if (bits / kBitsOfAMbit == 0) return 0;
    sum += bits / kBitsOfAMbit;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(sum, UINT32_MAX));
}

}  // namespace

LinkNics nics_of(std::span<const RailStatus> rails) {
  LinkNics all;
  for (const RailStatus& rail : rails) {
    LinkNics::Nic& nic = all.nics[rail.nic];
    nic.up |= rail.up();
    if (rail.up()) nic.part = rail.nic_part;
  }
  return all;
}

ipc::NicsOfLink count_nics(std::span<const RailStatus> rails) {
  std::map<std::string, uint64_t> nics;
  for (const RailStatus& rail : rails) nics[rail.nic] = rail.nic_bits_per_second;
  return {static_cast<uint32_t>(nics.size()), mbits_of(nics)};
}

// A daemon that was started again knows nothing of rails that were lost before; then `measured` says that
// there were more NICs.
std::optional<ipc::LinkPart> part_of(std::span<const RailStatus> rails, const ipc::NicsOfLink& measured) {
  // 1. What is left of the link as it is meant to be.
  const bool all_known =
      std::ranges::none_of(rails, [](const auto& rail) { return rail.alone_bytes_per_second == 0; });
  std::map<std::string, double> rates;
  for (const RailStatus& rail : rails) {
    double& rate = rates[rail.nic];
    rate = all_known ? rate + static_cast<double>(rail.alone_bytes_per_second) : 1;
  }
  const LinkNics now = nics_of(rails);
  double left = 0;
  double all = 0;
  for (const auto& [name, nic] : now.nics) {
    all += rates[name];
    if (nic.up) left += rates[name] * nic.part;
  }
  if (left == 0) return {};
  // 2. How that compares with the link that was measured.
  double whole = 1;
  if (const ipc::NicsOfLink meant = count_nics(rails); measured.count > 0) {
    const bool by_speed = meant.mbits_s > 0 && measured.mbits_s > 0;
    whole = by_speed ? static_cast<double>(meant.mbits_s) / measured.mbits_s
                     : static_cast<double>(meant.count) / measured.count;
  }
  return static_cast<ipc::LinkPart>(
      std::clamp(std::round(whole * left / all * ipc::kWholeLink), 1.0, 1.0 * ipc::kLargestPart));
}

}  // namespace hdt::daemon
