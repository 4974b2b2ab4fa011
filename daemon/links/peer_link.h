// peer_link.h: a way from this engine to the same-numbered engine of one other node, over one backend: the
// link, and the paths that are to carry its rails. Two nodes have one for each class of their groups, so that
// a NIC can be shared by class. One of the two nodes (dials() in node.h) dials, one connection a path, and
// again whenever one is lost; the other one only says, while it has no rail, that it has none, and hears
// whether the peer's daemon still lives.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/links/link_choice.h"
#include "daemon/links/link_probe.h"
#include "daemon/protocol/handshake.h"
#include "daemon/protocol/node.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// As transports know a node: who may write to what was granted to it.
inline transport::PeerName writer(const NodeId& node) { return {node.bytes}; }

// A device of ours and an address of theirs, which a connection goes over or is to go over.
struct RailPath {
  LinkCandidate::Pair pair;
  bool spare = false;                           // dialled only while no other one leads to the peer
  transport::Connection* connection = nullptr;  // being made, or a rail
  bool answered = false;                        // `connection`: the peer it was meant for has answered
  bool proven = false;  // it has carried a rail: who refuses there is where the peer was
  bool up = false;
  Deadline dial_at = Deadline::never();  // without a connection: when to try again
  uint32_t failures = 0;                 // dials in a row that led to no rail
  std::string failure;                   // why the last one did
  bool elsewhere = false;                // it led to somebody else, or to nobody
  int64_t up_ns = 0;
  int64_t held_back_ns = 0;  // the last delay of a rail that does not stay up

  // When to dial after the rail or the attempt was lost. `to_others`: it is elsewhere that the path leads.
  void schedule(int64_t now, bool to_others = false);
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
  std::vector<RailPath> paths;  // where we dial
  // Where the other one dials. Its ends, and whence its rails came, by device and address: where it can be
  // asked. An end from which none came may be the address of somebody else, whose refusal says nothing.
  std::vector<RailEnd> ends;
  std::set<std::pair<size_t, std::string>> came_from;
  int64_t first_dial_ms = 0;  // of an attempt to make the first rail
  bool announced = false;     // groups have been told that it is up
  bool gone = false;          // the other daemon does not listen any more
  std::optional<LinkProbe> probe;
  bool superseded = false;  // no group takes it any more; it ends when none uses it
  bool replaces = false;    // in the place of one that this end has broken: it comes up to say so
  bool hurried = false;
  bool unused_here = false;  // what both ends have said of that
  bool unused_there = false;
  uint64_t told_stray = 0;                 // the last group of which this end has said that it has none
  bool measured = false;                   // groups have been told its rates
  Deadline spares_at = Deadline::never();  // when spare paths are dialled as well
  int64_t up_since_ns = 0;
  Deadline ask_at = Deadline::never();  // where the peer dials: whether it is still there

  bool dialing() const;
  RailPath* path_of(const transport::Connection& connection);
  // Whether another connection leads to the peer so that this spare one is not needed: over no spare path, or
  // over the same NICs.
  bool is_needless(const RailPath& path) const;
  // Why no path leads to the peer, each with its end of both NICs; as long as a group's failure has room for.
  std::string failures() const;
  Deadline next_time() const;
  session::LinkRates rates() const { return probe ? probe->rates() : session::LinkRates{}; }
};

// Of a connection until it is ready: the handshake, and then what the backend does after it was admitted.
struct Greeting {
  Handshake handshake;
  Deadline until;
  NodeId expected;         // dialer: whom we dialled; zero for accepted connections
  std::string refused{};   // why the connection was closed here
  bool elsewhere = false;  // somebody else answered
};

}  // namespace hdt::daemon
