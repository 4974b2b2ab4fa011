// peer_link.h: a way from this engine to the same-numbered engine of one other node, over one backend: the link, and the
// paths that are to carry its rails. Two nodes have one for each class of their groups, so that a NIC can be shared by class.
// The node with the smaller id dials, one connection a path, and again whenever one is lost; the
// other one only asks, while it has no rail, whether the peer's daemon still lives.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/handshake.h"
#include "daemon/link_choice.h"
#include "daemon/link_probe.h"
#include "daemon/node.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// A device of ours and an address of theirs.
struct RailPath {
  size_t device = 0;
  std::string address;
  transport::Connection* connection = nullptr;  // being made, or a rail
  bool up = false;
  Deadline dial_at = Deadline::never();  // without a connection: when to try again
  uint32_t failures = 0;                 // dials in a row that led to no rail
  int64_t up_ns = 0;
  int64_t held_back_ns = 0;  // the last delay of a rail that does not stay up

  // When to dial after the rail or the attempt was lost.
  void schedule(int64_t now);
};

struct PeerLink {
  PeerLink(LinkId link_id, std::string node_name, uint32_t over, std::string of_class,
           transport::LinkObserver& observer, transport::LinkOptions options)
      : id(link_id),
        name(std::move(node_name)),
        backend(over),
        group_class(std::move(of_class)),
        link(observer, std::move(options)) {}

  LinkId id;
  std::string name;  // of the node
  uint32_t backend;  // the engine's number of it
  std::string group_class;
  transport::Link link;
  std::vector<RailPath> paths;             // where we dial
  std::vector<LinkCandidate::Pair> pairs;  // where the other one dials, as far as we know: whom to ask
  int64_t first_dial_ms = 0;               // of an attempt to make the first rail
  bool announced = false;                  // groups have been told that it is up
  bool gone = false;                       // the other daemon does not listen any more
  std::optional<LinkProbe> probe;
  bool superseded = false;  // no group takes it any more; it ends when none uses it
  bool hurried = false;
  bool unused_here = false;  // what both ends have said of that
  bool unused_there = false;
  bool measured = false;   // groups have been told its rates
  std::string last_error;  // of a dial that failed
  int64_t up_since_ns = 0;
  Deadline ask_at = Deadline::never();  // where the peer dials: whether it is still there

  bool dialing() const;
  Deadline next_time() const;
  session::LinkRates rates() const { return probe ? probe->rates() : session::LinkRates{}; }
};

// A connection whose handshake is under way.
struct Greeting {
  Handshake handshake;
  Deadline until;
  NodeId expected;  // dialer: whom we dialled; zero for accepted connections
};

}  // namespace hdt::daemon
