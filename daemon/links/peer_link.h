// peer_link.h: what an engine keeps of the link to the engine of the same index on another node, over
// one backend and for one class: the Link itself, and the paths that are to carry its rails. Two nodes
// have one link for each class of their groups, so that classes can share a NIC.
//
// One of the two nodes (dials() in node.h) dials: one connection for each path, and again whenever one
// is lost. The other node has no paths. While it has no rail, it informs the dialer, and learns whether
// the dialer's daemon still lives.
//
// The states (docs/glossary.md): dialing while `announced` is false, then up, draining once `draining`
// is set, and down when the Link has reported that.
//
// Owner: LinkTable; the engine's thread.
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

// The node as backends know it: whom a grant lets write.
inline transport::PeerName writer(const NodeId& node) { return {node.bytes}; }

// A device of this node and an address of the other, which a connection goes over or is to go over.
// Several paths may have the same pair, if a device needs several connections for its speed.
struct RailPath {
  LinkCandidate::Pair pair;
  // dialled only while no other path leads to the peer
  bool spare = false;
  // being made, or a rail; null: the path is idle
  transport::Connection* connection = nullptr;
  // of `connection`: the peer that it was meant for has answered
  bool answered = false;
  // it has carried a rail once, so whoever refuses there is where the peer was
  bool proven = false;
  // `connection` is a rail that carries traffic
  bool up = false;
  // of an idle path: when to dial again; never: not by itself
  Deadline dial_at = Deadline::never();
  // dials in a row that led to no rail
  uint32_t failures = 0;
  // why the latest of them did not; "" if it did, or was not needed
  std::string failure;
  // the latest dial led to another daemon, or to nobody
  bool elsewhere = false;
  // when the rail came up, by now_ns()
  int64_t up_ns = 0;
  // the latest delay of a rail that does not stay up, in ns; 0: it is stable
  int64_t held_back_ns = 0;

  // The rail or the attempt is lost at `now`: makes the path idle, and sets when it is dialled again.
  // `to_others`: the path has led elsewhere. The delays are in peer_link.cc.
  void schedule(int64_t now, bool to_others = false);
};

// See the head of this file.
struct PeerLink {
  // `observer`, the engine, must outlive the link. `over` is the engine's number of the backend.
  PeerLink(LinkId link_id, std::string node_name, uint32_t over, std::string of_class,
           transport::LinkObserver& observer, transport::LinkOptions options)
      : id(link_id),
        name(std::move(node_name)),
        backend(over),
        group_class(std::move(of_class)),
        link(observer, std::move(options)) {}

  // the other node, and the number that the dialer gave the link
  LinkId id;
  // the name of the other node
  std::string name;
  // the engine's number of the backend
  uint32_t backend;
  std::string group_class;
  transport::Link link;
  // where this node dials; empty: the other node does. Not resized while there are connections.
  std::vector<RailPath> paths;
  // If the other node dials: the ends at which it can be asked, and by device and address whence its
  // rails came. Only ends from which rails came are asked: another end may be somebody else's address,
  // whose refusal says nothing.
  std::vector<RailEnd> ends;
  std::set<std::pair<size_t, std::string>> came_from;
  // the limit in ms of a dial before the link is up
  int64_t first_dial_ms = 0;
  // the link has been up, and its groups know
  bool announced = false;
  // the other daemon does not listen any more, so its successor may come; this says why the link went
  // down, and is no state
  bool daemon_ended = false;
  // the measurement; nothing: none can be made, or not yet
  std::optional<LinkProbe> probe;
  // no group takes the link any more; it ends when none uses it
  bool draining = false;
  // in the place of a link that this end has broken: it comes up to report that
  bool replaces = false;
  // the peer has been asked for the acknowledgements that are missing at the end
  bool hurried = false;
  // This end and the other have sent LinkDrained.
  bool drained_here = false;
  bool drained_there = false;
  // the latest group of which this end has answered that it has none
  uint64_t told_stray = 0;
  // its groups have its rates, or know that there are none
  bool measured = false;
  // when spare paths are dialled as well
  Deadline spares_at = Deadline::never();
  // when its first rail came, by now_ns()
  int64_t up_since_ns = 0;
  // if the peer dials: when to ask whether it is still there
  Deadline ask_at = Deadline::never();

  // Some path has a connection, made or being made.
  bool dialing() const;
  // null: the connection is of no path.
  RailPath* path_of(const transport::Connection& connection);
  // Whether another connection leads to the peer so that this path, a spare one, is not needed: a
  // connection over a path that is not spare, or over the same NICs.
  bool is_needless(const RailPath& path) const;
  // Why no path leads to the peer, grouped by reason, each with both ends' NICs. No longer than a
  // group's failure has room for.
  std::string failures() const;
  // When the link or one of its paths has something to do.
  Deadline next_time() const;
  // not measured() if there is no probe.
  ipc::LinkRates rates() const { return probe ? probe->rates() : ipc::LinkRates{}; }
};

// The state of a connection until it is ready: for the handshake, and then for what the backend does
// after admit(). Owner: LinkTable::Rail.
struct Greeting {
  Handshake handshake;
  // when the connection is given up
  Deadline until;
  // at the dialer: the node that is meant; zero for accepted connections
  NodeId expected;
  // why this end has closed the connection; "": it has not
  std::string refused{};
  // another node has answered
  bool elsewhere = false;
};

}  // namespace hdt::daemon
