// link_table.h: the links of an engine to the engines of the same index on other nodes, and every connection
// that is, was or wants to be one of their rails.
//
// A connection goes through these states. Dialled or accepted, it has a `greeting`: first the handshake
// (handshake.h), whose messages on_greeting() handles; then the backend's own preparation after admit(). At
// kReady adopt() makes it a rail of its link, and the greeting ends. From then on all its events go to the
// link. At kClosed it is released, and the end that dialled it dials again (dialer.h).
//
// Owner: Engine; the engine's thread. As LinkObserver it hears from its links, and passes on to LinkUser what
// concerns groups.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/links/devices.h"
#include "daemon/links/dialer.h"
#include "daemon/links/link_settings.h"
#include "daemon/links/link_user.h"
#include "daemon/links/nic_shares.h"
#include "daemon/links/nic_watch.h"
#include "daemon/links/peer_link.h"
#include "daemon/protocol/stranger_log.h"
#include "transports/transport.h"

namespace hdt::daemon {

class LinkTable : public transport::LinkObserver {
 public:
  using Links = std::map<LinkId, std::unique_ptr<PeerLink>>;
  // A connection, from its first event to its release. `peer` is null until an accepted one is known, and
  // after its link went down.
  struct Rail {
    enum class Origin : uint8_t { kAccepted, kDialled, kAsking };
    PeerLink* peer = nullptr;
    size_t device = 0;
    std::unique_ptr<Greeting> greeting;  // null: the connection is ready
    Origin origin = Origin::kAccepted;
  };

  // All three must outlive this object.
  LinkTable(const LinkSettings& settings, Devices& devices, PolicyOfClass policy_of, LinkUser& user)
      : settings_(settings),
        devices_(devices),
        user_(user),
        shares_(devices, std::move(policy_of)),
        dialer_(settings, devices, *this) {}

  // All links, up or not. A call that may end a link changes it.
  const Links& all() const { return links_; }
  // null: there is none of this id.
  PeerLink* find(const LinkId& id) const;
  bool leads_to(const NodeId& node) const;
  // A link to the node over the very paths of the candidate; null: none.
  PeerLink* over(const NodeId& node, const std::string& group_class, const LinkCandidate& candidate) const;
  // Makes the entry of a link; it has no rail yet.
  PeerLink& add(const LinkId& id, const std::string& name, uint32_t backend, const std::string& group_class);
  // Removes the entry of a link that has never had a connection; nobody is informed.
  void discard(const LinkId& id) { links_.erase(id); }
  // Removes a link's entry, and informs the user.
  void forget(PeerLink& peer, const Status& why);
  // Enters a connection that this end has made.
  void enter(transport::Connection* connection, Rail rail) { rails_[connection] = std::move(rail); }
  // Makes links over candidates.
  Dialer& dialer() { return dialer_; }
  void set_policies(PolicyOfClass policy_of);

  // The parts of the engine's round.
  //
  // Polls all devices; true if anything has happened.
  bool poll();
  // Lets links hand over fragments in turn on NICs that several classes share.
  void give_turns();
  // Sends the acknowledgements that nothing has carried.
  void flush();
  // Does what is due now, for handshakes and for links; and the time when something is due next.
  void run_timers();
  Deadline next_time() const;
  // Ends links in which an exception has left a call.
  void break_torn();
  // Destroys the links that have ended since the last call. Nothing of them may be on the stack.
  void drop_ended() { ended_.clear(); }
  // Begins the orderly end of all links. It is over when there is no connection.
  void close_all(const Status& why);
  bool has_connections() const { return !rails_.empty(); }
  // No write is pending on any link.
  bool idle() const;
  // The descriptor by which the kernel reports changes of NICs, after watch_nics(); and those changes.
  Status watch_nics() { return nic_watch_.open(); }
  int nic_events() const { return nic_watch_.fd(); }
  void hear_nics();

 private:
  // An event of a connection, with care for exceptions: what throws ends its link, or it alone.
  void contain_completion(size_t device, const transport::Completion& completion);
  // An event of a connection: of its handshake here, of a rail in its link.
  void on_completion(size_t device, const transport::Completion& completion);
  // A message of the handshake. Refuses whoever is not the one that is expected.
  void on_greeting(Rail& rail, transport::Connection& connection, std::span<const std::byte> message);
  // The connection is ready: it becomes a rail of its link.
  void adopt(Rail& rail, transport::Connection& connection);
  // The link that an accepted connection belongs to, made if there is none; null: it was refused.
  PeerLink* link_of(Rail& rail, transport::Connection& connection);
  // Closes a connection in its handshake, and notes why.
  void refuse(Rail& rail, transport::Connection& connection, const std::string& why);
  // The node says that it has no rail of this link: all are given up and dialled again.
  void redial(const NodeId& node, uint32_t link);
  // For a link whose own state may be half written: it is not asked for anything any more.
  void break_link(PeerLink& peer, const std::string& why);
  // Makes a link in the place of one that was broken here, to let the other end hear of it.
  void say_broken(const LinkId& id, const std::string& name, uint32_t backend, const std::string& group_class,
                  std::vector<RailPath> paths);
  // Work on a link whose time has come.
  void look_at(PeerLink& peer);
  PeerLink& peer_of(const transport::Link& link) const;  // must be in links_

  void on_sent(transport::Link& link, uint64_t token) override;
  void on_arrived(transport::Link& link, const transport::LinkHeader& header, uint64_t bytes) override;
  void on_message(transport::Link& link, std::span<const std::byte> message) override;
  void on_down(transport::Link& link, const Status& reason) override;
  void on_rail_up(transport::Link& link, const transport::Connection& connection,
                  const transport::RailStatus& status) override;
  void on_rail_down(transport::Link& link, const transport::Connection& connection,
                    const transport::RailStatus& status, const std::string& lost) override;

  const LinkSettings& settings_;
  Devices& devices_;
  LinkUser& user_;
  NicShares shares_;
  Dialer dialer_;
  NicWatch nic_watch_;
  StrangerLog stranger_log_;
  std::unordered_map<transport::Connection*, Rail> rails_;  // every connection that is not released
  Links links_;
  std::vector<std::unique_ptr<PeerLink>> ended_;    // until the end of the round
  std::vector<transport::Completion> completions_;  // of one device's poll()
  size_t first_turn_ = 0;                           // of the links, in give_turns()
};

}  // namespace hdt::daemon
