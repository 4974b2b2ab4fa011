// peer_link.h: the way from this engine to the same-numbered engine of one other node: connections being made, their
// handshakes, and the link they become. The node with the smaller id dials. Up with the first rail; further
// rails join when their handshake is done.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/handshake.h"
#include "daemon/node.h"
#include "transports/link/link.h"

namespace hdt::daemon {

struct PeerLink {
  PeerLink(NodeInfo info, transport::LinkObserver& observer) : node(std::move(info)), link(observer) {}

  NodeInfo node;
  transport::Link link;
  bool announced = false;      // groups have been told that it is up
  uint32_t dialing = 0;        // connections under way
  std::string last_error;      // of a dial that failed
  int64_t up_since_ns = 0;
};

// A connection whose handshake is under way.
struct Greeting {
  Handshake handshake;
  transport::Device* device = nullptr;
  Deadline until;
  NodeId expected;  // dialer: whom we dialled; zero for accepted connections
  uint32_t rail = 0;
};

}  // namespace hdt::daemon
