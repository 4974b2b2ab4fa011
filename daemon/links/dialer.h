// dialer.h: makes the rails of links: dials their paths, again whenever they are lost, and asks whether the
// peer's daemon still lives.
//
// The end that dials has a list of paths (RailPath), each a NIC of this node and an address of the other. A
// path is idle until `dial_at`, then has a connection, which becomes a rail or fails; either way it is idle
// again afterwards (RailPath::schedule()). Until the link has its first rail each path is tried once, and the
// link fails when all have failed. From then on paths are dialled for ever, at intervals.
//
// Spare paths are dialled only if no other path leads to the peer: at once if all others have failed,
// otherwise kSparesAfterMs after the dial or after the last rail was lost.
//
// The end that does not dial can only ask whether the peer's daemon still lives (ask()), when it has no rail.
//
// Owner: LinkTable; the engine's thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "daemon/links/devices.h"
#include "daemon/links/link_choice.h"
#include "daemon/links/link_settings.h"
#include "daemon/links/peer_link.h"

namespace hdt::daemon {

class LinkTable;

class Dialer {
 public:
  // All three must outlive this object.
  Dialer(const LinkSettings& settings, Devices& devices, LinkTable& links)
      : settings_(settings), devices_(devices), links_(links) {}

  // Makes a link to the node over the candidate, and dials it. `last`: no other candidate is left, so the
  // dial may take its full time, otherwise kTryMs. Null: no device could begin; the candidate says why.
  PeerLink* dial_candidate(const NodeInfo& node, const std::string& group_class, LinkCandidate& candidate,
                           bool last);
  // Dials every path once. False: no path can even be tried, and the paths say why.
  bool dial(PeerLink& peer);
  // A connection that this end has made has ended. `asked`: it was made by ask(). `elsewhere`: somebody else
  // answered. May end the link.
  void on_connection_lost(PeerLink& peer, const transport::Connection& connection, bool asked,
                          const Status& why, bool elsewhere);
  // The link has lost its last rail.
  void on_last_rail_lost(PeerLink& peer) const;
  // A NIC is back: its paths are dialled at once.
  void on_nic_up(const std::string& nic) const;
  // Dials and asks what is due.
  void on_time(PeerLink& peer);

  // The limit in ms of a dial while another candidate is left.
  static constexpr int64_t kTryMs = 2'000;

 private:
  // Dials spare paths if no rail is up.
  void dial_spares(PeerLink& peer);
  // Never throws: a path that cannot be dialled has failed.
  void dial_path(PeerLink& peer, RailPath& path);
  // Dials, and enters the connection into the table.
  void begin_path(PeerLink& peer, RailPath& path);
  // Asks whether the peer's daemon still listens, without making a rail.
  void ask(PeerLink& peer);

  const LinkSettings& settings_;
  Devices& devices_;
  LinkTable& links_;
  uint32_t next_link_ = 1;  // the number of the next link that this end dials
};

}  // namespace hdt::daemon
