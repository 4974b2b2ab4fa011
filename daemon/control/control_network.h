// control_network.h: connections between the control threads of daemons. It dials, does the handshake,
// and carries messages of up to kMaxControlBytes, cut into parts of the transport's size. It always uses
// the tcp backend, whatever moves the payload.
//
// A daemon listens on all its NICs, so that groups can be made while one is down. Its address is
// therefore a list, "10.0.0.1:4000,10.0.1.1:4001", and it may begin with the daemon's node id: "<32 hex
// digits>@10.0.0.1:4000,...". The dialer tries the addresses in turn, the next one as soon as one fails
// or has not answered for 250 ms. It uses the first one at which the *intended* daemon completes the
// handshake. If the list begins with a node id, that node is intended; otherwise any node but this one,
// unless the list is this node's own. Hosts may have addresses in common (a management controller's NIC,
// a container bridge), so an address alone proves nothing.
//
// Two kinds of objects: a control connection (`Channel`) is what callers see, by its ChannelId. A `Route`
// is one transport connection that belongs to it. A dialed channel may have several routes at once; the
// first that completes the handshake becomes the channel's connection, and the others are closed. An
// accepted channel has one route.
//
// A channel that a caller knows ends exactly once: by finish() without a callback, or with on_closed,
// which the next poll() calls. on_closed is called again if it throws, since whoever waits on the channel
// must learn of its end. An accepted channel whose handshake fails is dropped silently: nobody here knows
// it.
//
// Owner and thread: Control; the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/handshake.h"
#include "daemon/protocol/stranger_log.h"
#include "transports/transport.h"

namespace hdt::daemon {

// For so long, in ms, the socket of a meeting place stays open after its last group, so that ranks that
// come late get a reason.
inline constexpr int64_t kLateMs = 5'000;

struct ControlNetworkOptions {
  // of this node, for the handshake and the log
  std::string node_name;
  std::shared_ptr<Trust> trust;
  // the NICs to listen on; the first one must work, the others may fail
  std::vector<transport::DeviceInfo> devices;
  // to listen at, the same on each NIC; 0: any free port
  uint16_t port = 0;
  // for connecting and the handshake, each from its begin, in ms
  int64_t connect_ms = 10'000;
  // how many connections whose handshake is not done may exist
  transport::StrangerLimits strangers{};
  // This daemon has peers on its own host only (own_host.h): it listens at meeting places on loopback,
  // and dials no other host.
  bool own_host_only = false;
  // A whole message has come; its bytes are valid during the call.
  std::function<void(ChannelId, std::span<const std::byte>)> on_message;
  // The channel has ended, for this reason. Nothing more comes on it, and send() drops what is sent on
  // it.
  std::function<void(ChannelId, const Status&)> on_closed;
};

class ControlNetwork : public Channels {
 public:
  // `options.trust` must be set. Opens nothing.
  explicit ControlNetwork(ControlNetworkOptions options);

  // Listens on the NICs. Fails if the first NIC cannot be used or TLS cannot be set up; a later NIC that
  // fails is logged.
  Status start();
  // This daemon's addresses: those of as many NICs as fit into kMaxAddressBytes. Does not change after
  // start().
  const std::string& address() const { return address_; }
  // The same with the node id in front. Whoever dials it reaches this daemon or none.
  std::string address_with_id() const;

  // Listens at a meeting place as well (HDT_RENDEZVOUS, MASTER_ADDR). It is a list of addresses; those of
  // other hosts are skipped. With `on_nics`, also at the port of the first one on each NIC. Each
  // successful call needs one leave_place() with the same arguments. kInvalidArgument: an address has no
  // port; kSystem: a port is taken; kConfig: none is an address of this host.
  Status host_place(const std::string& addresses, bool on_nics);
  // Ends one host_place(). The sockets close when no group meets there any more and kLateMs have passed.
  void leave_place(const std::string& addresses, bool on_nics);
  // Whether it listens at one of the addresses, as its own or as a meeting place. A node id in front is
  // ignored.
  bool listens_at(const std::string& addresses) const;

  // Makes a channel to a daemon at one of these addresses. Never 0, never blocks. Messages may be sent at
  // once; they leave when the handshake is done. Failure comes later, through on_closed, whose text has
  // each address that was tried and why it failed. kSystem: this process or the peer is at a limit;
  // kConfig: only other hosts are meant, and this daemon has peers on its own one; kLink: any other
  // reason. `self`: whether this node itself may be meant; nothing: it is meant if all addresses are its
  // own.
  ChannelId dial(const std::string& addresses, std::optional<bool> self) override;
  using Channels::dial;
  void send(ChannelId channel, const ControlMessage& message) override;
  // The same with the bytes of a message, but throws if there is no memory for it.
  void send(ChannelId channel, std::span<const std::byte> message);
  // Whether the daemon at the other end, whose handshake is done, is `node`, by id and name. A daemon
  // speaks for no other node.
  bool is_from(ChannelId channel, const NodeInfo& node) const;
  // Closes the channel when everything that was sent on it has left. on_closed is not called.
  void finish(ChannelId channel) override;
  // Ends the channel because something that was to be sent on it, or what came on it, is lost: so both
  // ends learn of it. on_closed follows. Takes no memory.
  void give_up(ChannelId channel) override;

  // Handles what has happened on the devices, and calls on_message and on_closed. True if anything had
  // happened, so that the caller polls again.
  bool poll();
  // Ends handshakes that take too long, tries next addresses, closes meeting places.
  void on_time();
  // When on_time() or poll() has something to do next; nothing: no timer runs.
  std::optional<Deadline> next_time() const;
  // Descriptors to sleep on until poll() has something to do. They change with host_place(),
  // leave_place() and dial().
  std::vector<int> fds() const;
  // counts how often they have changed
  uint64_t device_changes() const { return device_changes_; }
  // The node at the other end; all zeros while the handshake is not done, and of a channel that has ended.
  NodeId peer_of(ChannelId channel) const;
  size_t open_channels() const { return channels_.size(); }
  // Whether the transport has sent everything on the channels whose handshake is done.
  bool all_sent() const;

 private:
  // A control connection. It is in channels_ until it has ended, then in ended_ until on_closed has
  // returned.
  struct Channel {
    ChannelId id = 0;
    // the route that has completed the handshake; null: none has yet
    transport::Connection* connection = nullptr;
    // dialed: the node id that must answer; nothing: another rule decides (may_be_self)
    std::optional<NodeId> expected;
    // dialed: this node itself may answer
    bool may_be_self = false;
    // the node at the other end; valid when `connection` is set
    NodeId peer;
    std::string peer_name;
    // dialed: addresses that were not tried yet
    std::deque<std::string> untried;
    // dialed: when the next of them is tried, although an attempt is under way
    Deadline next_try = Deadline::never();
    // routes without a completed handshake
    size_t trying = 0;
    // an attempt failed at a limit, of this process or of the peer's
    bool at_limit = false;
    // an address belongs to another host, which this daemon does not dial
    bool elsewhere = false;
    // each address that was tried, and why it is not used
    std::string failures;
    // messages to send when the handshake is done
    std::vector<std::vector<std::byte>> waiting;
    // the parts of an incoming message that have come
    std::vector<std::byte> partial;
    // why this end closed the connection; "": it did not
    std::string refused;
    // parts that the transport has not sent yet
    size_t unsent = 0;
    // finish() was called
    bool finishing = false;
    // in ended_: why it ended
    Status ended;
    // in ended_: when on_closed is called; later again if it threw
    Deadline tell_at = Deadline::never();
  };
  // One transport connection. It may outlive its channel; then it is closed at its next completion.
  struct Route {
    ChannelId channel = 0;
    transport::Device* device = nullptr;
    Handshake handshake;
    // the address that was dialed; "": the connection was accepted
    std::string address;
    // the handshake's deadline
    Deadline until = Deadline::never();
    // why this end closed the connection; "": it did not
    std::string refused;
  };
  // A meeting place: an address besides the NICs' own ones at which this daemon listens.
  struct Place {
    transport::Device* device = nullptr;
    // host_place() calls without their leave_place()
    size_t users = 0;
    // set when `users` has become 0: when it may close
    Deadline close_at = Deadline::never();
  };

  // Whether it listens at the address, as its own or a meeting place.
  bool is_here(const std::string& address) const;
  // Adds a device to devices_.
  transport::Device* keep(std::unique_ptr<transport::Device> device);
  // Opens a NIC and listens on it; `listening` gets the address.
  Result<std::unique_ptr<transport::Device>> open(const transport::DeviceInfo& nic, uint16_t port,
                                                  std::string* listening);
  // The address at which it listens, or which it dials, for this one: on loopback if it has peers on its
  // own host only.
  std::string place_of(const std::string& address) const;
  // The addresses of a host_place() call, each once, in the order in which they were given.
  Result<std::vector<std::string>> places_of(const std::string& addresses, bool on_nics) const;
  // Closes the places that nobody uses, whose time is over, and that have no connection.
  void close_places();
  // A new channel, without a route.
  Channel& add_channel();
  // A new route of a channel, at the begin of its handshake.
  Route& add_route(transport::Connection* connection, Channel& channel, transport::Device& device,
                   Handshake::Role role);
  // The device to dial an address with: a NIC in its subnet, else one that lets the routing table choose.
  Result<transport::Device*> device_for(const std::string& address);
  // The work of dial(), which contains its exceptions.
  void dial_for(Channel& channel, const std::string& addresses, std::optional<bool> self);
  // Connects to the next address at which that is possible. Ends the channel if none is left and no
  // attempt is under way.
  void try_next(Channel& channel);
  // on_completion() with its exceptions contained.
  void contain_completion(transport::Device& device, const transport::Completion& completion);
  void on_completion(transport::Device& device, const transport::Completion& completion);
  void on_connection_closed(const transport::Completion& completion);
  // A message on a route whose handshake is not done.
  void on_handshake(Channel& channel, Route& route, transport::Connection& connection,
                    std::span<const std::byte> bytes);
  // Why the daemon that answered on a dialed route is not the intended one; "": it is.
  std::string not_meant(const Channel& channel, const PeerHello& peer) const;
  // A part of a message has come.
  void on_bytes(Channel& channel, std::span<const std::byte> bytes);
  // Cuts a message into parts and sends them.
  void send_now(Channel& channel, std::span<const std::byte> message);
  // Closes a route that has not completed its handshake, and logs why.
  void refuse(Route& route, transport::Connection& connection, const std::string& why);
  // Closes the connection of a channel, and logs why.
  void close(Channel& channel, const std::string& why);
  // Moves the channel to ended_; the next poll() calls on_closed. Takes no memory if `why` takes none.
  void end(ChannelId channel, Status why);
  // Calls on_closed for the channels in ended_ that are due. True if one of these calls succeeded.
  bool tell_ended();

  ControlNetworkOptions options_;
  std::unique_ptr<transport::Backend> backend_;
  // the NICs' first, then those of meeting places and of any_source_
  std::vector<std::unique_ptr<transport::Device>> devices_;
  // how many of devices_ are NICs'
  size_t nics_ = 0;
  // by "is IPv6": devices that are bound to no address of this host, for dialing only
  std::map<bool, transport::Device*> any_source_;
  // by "address:port"
  std::map<std::string, Place> places_;
  std::string address_;
  // a buffer for poll()
  std::vector<transport::Completion> completions_;
  // by their connections
  std::unordered_map<transport::Connection*, Route> routes_;
  // that have not ended
  std::map<ChannelId, Channel> channels_;
  // that have ended, until on_closed has returned
  std::map<ChannelId, Channel> ended_;
  ChannelId next_id_ = 1;
  uint64_t device_changes_ = 0;
  StrangerLog stranger_log_;
};

}  // namespace hdt::daemon
