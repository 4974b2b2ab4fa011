// link_user.h: what an engine hears from its links. LinkTable and LinkMeasuring call these functions on the
// engine's thread; the engine passes them on to the groups, which the classes in links/ do not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "daemon/links/measurements_file.h"
#include "daemon/links/peer_link.h"
#include "ipc/measurements.h"
#include "transports/link/link.h"

namespace hdt::daemon {

class LinkUser {
 public:
  virtual ~LinkUser() = default;
  // The link has its first rail: it is up from now on, whatever becomes of its rails.
  virtual void on_up(PeerLink& peer) = 0;
  // The link is no longer in the table; `peer` lives until the end of the round. `daemon_ended`: the other
  // daemon does not listen any more, so a successor may come. `last`: no other link to that node is left.
  virtual void on_down(PeerLink& peer, const Status& why, bool daemon_ended, bool last) = 0;
  // The link has got or lost a rail. Not called for the rail with which it comes up, nor at its end.
  virtual void on_rails(PeerLink& peer) = 0;
  // The measurement of the link is over. `rates` are not measured() if there was none.
  virtual void on_link_rates(PeerLink& peer, const ipc::LinkRates& rates) = 0;
  // Something was measured that the daemon did not know. `news` has nothing else in it.
  virtual void on_news(const KnownMeasurements& news) = 0;
  // Whether a group that still needs the other node uses the link. The end of a link that no group needs is
  // no news for an operator.
  virtual bool is_used(const PeerLink& peer) const = 0;
  // As LinkObserver (transports/link/link.h): a write is done, a frame has landed, a message has come.
  virtual void on_sent(PeerLink& peer, uint64_t token) = 0;
  virtual void on_arrived(PeerLink& peer, const transport::LinkHeader& header, uint64_t bytes) = 0;
  virtual void on_message(PeerLink& peer, std::span<const std::byte> message) = 0;
};

}  // namespace hdt::daemon
