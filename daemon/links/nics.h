// nics.h: which addresses of this host the daemon uses, by the configuration, and which NIC of this node
// is paired with which of another one. Pure functions but for select_nics(); any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "daemon/protocol/node.h"
#include "transports/net/subnet.h"
#include "transports/transport.h"

namespace hdt::daemon {

// The addresses to use. nics.addresses as they are given; otherwise those of every NIC that is up and
// selected by nics.use and nics.exclude, first the first addresses of all NICs, then the second ones;
// otherwise the loopback address, which the log mentions. Errors are those of backend.discover(). NICs
// without a carrier are used if no other one is selected.
Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config,
                                                       transport::Backend& backend);

// Which paths to dial between two nodes. A pair is an index of our devices and an index of their ends.
struct RailPlan {
  // the paths to dial at first
  std::vector<std::pair<size_t, size_t>> rails;
  // Other pairs that may lead there, the likeliest first; for when none of `rails` comes up.
  std::vector<std::pair<size_t, size_t>> spares;
};

// The maximum number of paths between two nodes over one backend, spares included.
inline constexpr size_t kMostPaths = 64;

// Pairs our devices with their ends. Every NIC of the side with more NICs gets one path, within its
// subnet if possible, and the NICs of the other side are used as evenly as possible. Two addresses of
// one NIC count as one NIC: the better one is taken, and the other is a spare.
//
// An address that this host has itself is no path to another host, and neither is an address of ours
// that the other host has. They are the last spares. If all of their addresses are this host's own, the
// other daemon runs on this host, and all count alike. This is a guess that only orders the attempts;
// the handshake decides.
RailPlan pair_nics(const std::vector<transport::DeviceInfo>& devices, const std::vector<RailEnd>& theirs,
                   const transport::OwnAddresses& own);

// The name of the NIC without the label of an address on it: "eth0" for "eth0:1".
std::string nic_of(const std::string& interface);

}  // namespace hdt::daemon
