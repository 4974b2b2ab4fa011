// Candidates for a link, and how they are reported.
#include "daemon/links/link_choice.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/address.h"
#include "daemon/links/nics.h"

namespace hdt::daemon {

namespace {

// The backends of one engine's ends, in the order of preference of their node.
std::vector<std::string> backends_of(const std::vector<RailEnd>& ends) {
  std::vector<std::string> backends;
  for (const RailEnd& end : ends) {
    if (std::find(backends.begin(), backends.end(), end.backend) == backends.end())
      backends.push_back(end.backend);
  }
  return backends;
}

// Those of one backend, in their order.
std::vector<RailEnd> ends_of(const std::vector<RailEnd>& ends, const std::string& backend) {
  std::vector<RailEnd> own;
  std::copy_if(ends.begin(), ends.end(), std::back_inserter(own),
               [&](const RailEnd& end) { return end.backend == backend; });
  return own;
}

// "node n0 (rdma on mlx5_0, tcp on eth0 and eth1)"
std::string describe(const NodeInfo& node) {
  std::string text;
  for (const std::string& backend :
       node.rails.empty() ? std::vector<std::string>() : backends_of(node.rails.front())) {
    std::string nics;
    for (const RailEnd& end : ends_of(node.rails.front(), backend))
      nics += (nics.empty() ? "" : " and ") + end.nic;
    text += (text.empty() ? "" : ", ") + backend + " on " + nics;
  }
  return "node " + node.name + " (" + (text.empty() ? "no backend" : text) + ")";
}

}  // namespace

// A port of ours says nothing, since connections leave from any port.
std::string LinkCandidate::Pair::describe() const {
  return ours.nic + " " + host_of(ours.address) + " - " + theirs.nic + " " + theirs.address;
}

// Both ends must come to the same order of backends, or they would choose different links: so one of the
// two nodes decides, the first one in the group.
std::vector<LinkCandidate> link_candidates(const NodeInfo& own, const NodeInfo& peer, bool own_is_first,
                                           uint32_t engine, const std::vector<transport::DeviceInfo>& devices,
                                           const std::vector<std::string>& addresses,
                                           const transport::OwnAddresses& host) {
  std::vector<LinkCandidate> candidates;
  if (engine >= own.rails.size() || engine >= peer.rails.size()) return candidates;
  const auto& ours = own.rails[engine];
  const auto& theirs = peer.rails[engine];
  // The ends are in the order of the backends of the node that counts.
  for (const std::string& backend : backends_of(own_is_first ? ours : theirs)) {
    const auto our_ends = ends_of(ours, backend);
    const auto their_ends = ends_of(theirs, backend);
    std::vector<transport::DeviceInfo> our_devices;
    // the ends that our devices listen at
    std::vector<RailEnd> open_ends;
    std::vector<size_t> numbers;
    // 1. This node's devices for the backend. An end that this engine has not opened a device for is not
    //    used.
    for (const RailEnd& end : our_ends) {
      const auto at = std::find(addresses.begin(), addresses.end(), end.address);
      if (at == addresses.end()) continue;
      numbers.push_back(static_cast<size_t>(at - addresses.begin()));
      our_devices.push_back(devices[numbers.back()]);
      open_ends.push_back(end);
    }
    LinkCandidate candidate{backend, {}, {}, ""};
    // 2. Which NIC goes to which (nics.h).
    const RailPlan plan = pair_nics(our_devices, their_ends, host);
    for (const auto& [i, j] : plan.rails)
      candidate.pairs.push_back({numbers[i], open_ends[i], their_ends[j]});
    for (const auto& [i, j] : plan.spares)
      candidate.spares.push_back({numbers[i], open_ends[i], their_ends[j]});
    // A backend without any path is no candidate.
    if (!candidate.pairs.empty()) candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// Asked before a group is made, so that a group whose nodes have no backend in common fails with that reason
// at once.
std::string misfit(const NodeInfo& a, const NodeInfo& b, const std::string& group_class) {
  // All engines have the same backends, so the first one's ends are enough.
  if (!a.rails.empty() && !b.rails.empty()) {
    for (const std::string& backend : backends_of(a.rails.front())) {
      if (!ends_of(b.rails.front(), backend).empty()) return "";
    }
  }
  return "class " + group_class + ": no backend fits both " + describe(a) + " and " + describe(b);
}

// Candidates that were not tried have no failure and are left out.
std::string LinkChoice::failures() const {
  std::string text;
  for (const LinkCandidate& candidate : candidates) {
    if (!candidate.failure.empty())
      text += (text.empty() ? "" : "; ") + candidate.backend + ": " + candidate.failure;
  }
  return text;
}

// The outcome of a candidate: its failure, "connected", "being tried", or "not tried". The end that does not
// dial does not know what the other one tries.
nlohmann::json LinkChoice::report() const {
  nlohmann::json json = {{"node", peer.name}, {"class", group_class}, {"dials", dials}};
  json["chosen"] = chosen.empty() ? nlohmann::json() : nlohmann::json(chosen);
  json["candidates"] = nlohmann::json::array();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const LinkCandidate& candidate = candidates[i];
    std::string result = candidate.failure;
    if (result.empty() && candidate.backend == chosen) result = "connected";
    if (result.empty() && chosen.empty() && dials && i == current) result = "being tried";
    if (result.empty()) result = dials ? "not tried" : "node " + peer.name + " tries it";
    nlohmann::json pairs = nlohmann::json::array();
    for (const auto& pair : candidate.pairs) {
      pairs.push_back({{"nic", pair.ours.nic},
                       {"address", pair.ours.address},
                       {"their_nic", pair.theirs.nic},
                       {"their_address", pair.theirs.address}});
    }
    json["candidates"].push_back({{"backend", candidate.backend}, {"result", result}, {"rails", pairs}});
  }
  return json;
}

}  // namespace hdt::daemon
