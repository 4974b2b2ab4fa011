// nics.h: which of the machine's addresses the daemon uses, by config.
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

// nics.addresses as given; else the addresses of every NIC that is up and selected by use / exclude, the
// first ones of all NICs before the second ones; else loopback, said in the log.
Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config,
                                                       transport::Backend& backend);

// Pairs of indices: of our devices and of their ends.
struct RailPlan {
  std::vector<std::pair<size_t, size_t>> rails;
  // What else may lead there, the likeliest first: for when no rail comes up.
  std::vector<std::pair<size_t, size_t>> spares;
};

// Dialled between two nodes over one backend at most, spares counted.
inline constexpr size_t kMostPaths = 64;

// Which rails to make between our devices and their ends: every NIC of the side with more of them gets one,
// within its subnet where it can, and those of the other side as evenly as possible. Two addresses of one NIC
// are one NIC: the fitting one is taken, the other one is a spare. An address that this host has itself is no
// path to another host, nor is one of ours that the other one has: they are the last spares. Where all of
// theirs are this host's own, the other daemon runs here, and all count alike.
RailPlan pair_nics(const std::vector<transport::DeviceInfo>& devices, const std::vector<RailEnd>& theirs,
                   const transport::OwnAddresses& own);

// The name of the NIC without the label of an address on it ("eth0:1").
std::string nic_of(const std::string& interface);

}  // namespace hdt::daemon
