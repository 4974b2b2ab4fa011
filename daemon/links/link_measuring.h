// link_measuring.h: what an engine measures: the memory of its node once (memory_rates.h), and each link
// when it comes up (link_probe.h). A value is not measured again while the daemon keeps it.
// LinkUser hears of every link when its measurement is over, as groups wait for that, and of what is new,
// which Control keeps.
//
// Owner: Engine; the engine's thread. The probes themselves are in PeerLink.
#pragma once

#include <optional>
#include <string>

#include "daemon/links/devices.h"
#include "daemon/links/link_settings.h"
#include "daemon/links/link_table.h"
#include "daemon/links/link_user.h"
#include "daemon/links/measurements_file.h"
#include "daemon/links/registration.h"

namespace hdt::daemon {

class LinkMeasuring {
 public:
  // `known` was measured before, by this daemon or an earlier one. The others must outlive this object.
  LinkMeasuring(const LinkSettings& settings, KnownMeasurements known, Devices& devices, LinkTable& links,
                LinkUser& user)
      : settings_(settings), known_(std::move(known)), devices_(devices), links_(links), user_(user) {}

  // Measures at the first call, which takes some 40 ms: an engine without a group of several nodes needs no
  // measurement.
  const ipc::MemoryRates& memory();
  // Gives a link that has just come up its probe. A link that cannot be measured, as its memory cannot be
  // registered, has none: its groups go on without measurements.
  void make_probe(PeerLink& peer);
  // Ends the measurement if there is nothing (left) to measure. The link counts as measured from then on,
  // also if its rates are not known; then no node of its groups predicts (cost_measurements.h).
  void end_if_done(PeerLink& peer);
  // No link to the node is left: it may not write to the probe memory any more.
  void forget_node(const NodeId& node);
  // Gives up measurements that have passed their deadline. And when the next does.
  void run_timers();
  Deadline next_time() const;

 private:
  // The name under which a link's measurements are kept: its node, and the backend unless it is tcp.
  std::string kept_as(const PeerLink& peer) const;
  void end(PeerLink& peer);

  const LinkSettings& settings_;
  KnownMeasurements known_;
  Devices& devices_;
  LinkTable& links_;
  LinkUser& user_;
  ProbeMemory memory_;
  std::optional<Registration> registration_;  // of `memory_`, from the first link on
};

}  // namespace hdt::daemon
