// control_network.h: connections between the control threads of daemons: dialling, handshake, and messages of
// up to kMaxControlBytes, cut to the transport's size. They use the tcp backend, whatever moves the payload.
//
// A daemon listens on all its NICs, so that groups can be made while one is dead. Its address is therefore a
// list, "10.0.0.1:4000,10.0.1.1:4001", and it may begin with the daemon's node id: "<32 hex
// digits>@10.0.0.1:4000,...". The dialer tries the addresses in turn, the next one as soon as one fails or
// has not answered for 250 ms. The first one at which the *right* daemon completes the handshake is used:
// where the list begins with a node id, that node; else any node but this one, unless the list is this node's
// own. Hosts may have addresses in common (the NIC of a management controller, a container bridge), so an
// address alone proves nothing.
//
// Owner and thread: the control thread.
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

// A meeting place that nobody hosts any more still tells latecomers why for this long.
inline constexpr int64_t kLateMs = 5'000;

struct ControlNetworkOptions {
  std::string node_name;
  std::shared_ptr<Trust> trust;
  std::vector<transport::DeviceInfo> devices;  // the first one must work
  uint16_t port = 0;                           // on each; 0: any
  int64_t connect_ms = 10'000;
  transport::StrangerLimits strangers{};
  bool own_host_only =
      false;  // own_host.h: meeting places of this host are at loopback, others are not dialled
  std::function<void(ChannelId, std::span<const std::byte>)> on_message;
  std::function<void(ChannelId, const Status&)> on_closed;
};

class ControlNetwork {
 public:
  explicit ControlNetwork(ControlNetworkOptions options);

  Status start();
  // This daemon's addresses: those of as many NICs as fit into kMaxAddressBytes.
  const std::string& address() const { return address_; }
  // The same with the node id in front. Whoever dials it reaches this daemon or nobody.
  std::string address_with_id() const;

  // Listens at a meeting place as well (HDT_RENDEZVOUS, MASTER_ADDR): a list of addresses, of which those of
  // other hosts are passed over. With `on_nics` also at the port of the first one on each NIC. Fails where
  // none is an address of this host, and where a port is taken. Each call needs one leave_place() with the
  // same arguments.
  Status host_place(const std::string& addresses, bool on_nics);
  // Ends one host_place(). The sockets close when nobody hosts there any more and those who arrive late have
  // had kLateMs to hear why.
  void leave_place(const std::string& addresses, bool on_nics);
  // Whether it listens at one of the addresses: its own, or a meeting place. A node id in front is passed
  // over.
  bool listens_at(const std::string& addresses) const;

  // Never 0. Messages may be sent at once; they go out when the handshake is done. Failure comes later, as
  // on_closed, whose text has each address that was tried and why it failed; kConfig: only other hosts are
  // meant, and this daemon has peers on its own one. `self`: whether this node itself may be meant; where
  // nothing is given it is meant if all addresses are its own.
  ChannelId dial(const std::string& addresses, std::optional<bool> self = std::nullopt);
  // Throws where there is no memory for the message. The caller gives the channel up then: Control::send().
  void send(ChannelId channel, std::span<const std::byte> message);
  // Whether the daemon behind the channel, whose handshake is done, is this node: it speaks for no other one.
  bool is_from(ChannelId channel, const NodeInfo& node) const;
  // Closes the channel once everything that was sent on it has left. on_closed is not called.
  void finish(ChannelId channel);
  // Something that was to be said on the channel, or what came on it, is lost: the channel ends, so that both
  // ends hear of it. on_closed follows. Takes no memory.
  void give_up(ChannelId channel);

  bool poll();
  void on_time();
  std::optional<Deadline> next_time() const;
  // Descriptors to sleep on. They change with host_place() and leave_place().
  std::vector<int> fds() const;
  uint64_t device_changes() const { return device_changes_; }  // counts openings and closings of them
  // Who is at the other end; all zeroes while the handshake is not done, and of a channel that is gone.
  NodeId peer_of(ChannelId channel) const;
  size_t open_channels() const { return channels_.size(); }
  // Of no channel whose handshake is done something is left that the transport has not sent.
  bool all_sent() const;

 private:
  struct Channel {
    ChannelId id = 0;
    transport::Connection* connection = nullptr;  // null: nobody has completed the handshake yet
    std::optional<NodeId> expected;               // dialed: who must answer
    bool may_be_self = false;
    NodeId peer;  // with its name, when the handshake is done
    std::string peer_name;
    std::deque<std::string> untried;  // addresses
    Deadline next_try = Deadline::never();
    size_t trying = 0;       // connections without a completed handshake
    bool at_limit = false;   // an attempt failed at a limit, of this process or of the peer's
    bool elsewhere = false;  // an address is of another host, which this daemon does not dial
    std::string failures;    // each address tried, and why it is not used
    std::vector<std::vector<std::byte>> waiting;  // until the handshake is done
    std::vector<std::byte> partial;               // of an incoming message
    std::string refused;                          // why this side closed it
    size_t unsent = 0;                            // parts that the transport has not sent yet
    bool finishing = false;
    Status ended;                          // in ended_: why
    Deadline tell_at = Deadline::never();  // in ended_, when on_closed has thrown: again then
  };
  // A connection of a channel. It may outlive the channel.
  struct Route {
    ChannelId channel = 0;
    transport::Device* device = nullptr;
    Handshake handshake;
    std::string address;                 // dialed: as it was given
    Deadline until = Deadline::never();  // of the handshake
    std::string refused;                 // why this side closed it
  };
  struct Place {
    transport::Device* device = nullptr;
    size_t users = 0;
    Deadline close_at = Deadline::never();
  };

  // Whether it listens at the address.
  bool is_here(const std::string& address) const;
  transport::Device* keep(std::unique_ptr<transport::Device> device);
  Result<std::unique_ptr<transport::Device>> open(const transport::DeviceInfo& nic, uint16_t port,
                                                  std::string* listening);
  // The address at which it listens, or dials, for this one.
  std::string place_of(const std::string& address) const;
  // The addresses of a host_place() call, duplicates and this daemon's own ones left out.
  Result<std::vector<std::string>> places_of(const std::string& addresses, bool on_nics) const;
  void close_places();
  Channel& add_channel();
  Route& add_route(transport::Connection* connection, Channel& channel, transport::Device& device,
                   Handshake::Role role);
  // A NIC in the address's subnet, else whatever the routing table takes.
  Result<transport::Device*> device_for(const std::string& address);
  void dial_for(Channel& channel, const std::string& addresses, std::optional<bool> self);
  // Connects to the next address that can be; fails the channel where none is left.
  void try_next(Channel& channel);
  void contain_completion(transport::Device& device, const transport::Completion& completion);
  void on_completion(transport::Device& device, const transport::Completion& completion);
  void on_connection_closed(const transport::Completion& completion);
  void on_handshake(Channel& channel, Route& route, transport::Connection& connection,
                    std::span<const std::byte> bytes);
  // Why the daemon that answered on a dialed connection is not the one that was meant; empty: it is.
  std::string not_meant(const Channel& channel, const PeerHello& peer) const;
  void on_bytes(Channel& channel, std::span<const std::byte> bytes);
  void send_now(Channel& channel, std::span<const std::byte> message);
  void refuse(Route& route, transport::Connection& connection, const std::string& why);
  void close(Channel& channel, const std::string& why);
  // The channel is gone, and the next poll() says so. Takes no memory.
  void end(ChannelId channel, Status why);
  bool tell_ended();

  ControlNetworkOptions options_;
  std::unique_ptr<transport::Backend> backend_;
  std::vector<std::unique_ptr<transport::Device>>
      devices_;  // the NICs' first, then those of places and sources
  size_t nics_ = 0;
  std::map<bool, transport::Device*> any_source_;  // by "is IPv6": bound to no address of this host
  std::map<std::string, Place> places_;            // by "address:port"
  std::string address_;
  std::vector<transport::Completion> completions_;
  std::unordered_map<transport::Connection*, Route> routes_;
  std::map<ChannelId, Channel> channels_;
  // Until on_closed has returned: whoever waits on one must hear of its end, so that it is said again where
  // that throws.
  std::map<ChannelId, Channel> ended_;
  ChannelId next_id_ = 1;
  uint64_t device_changes_ = 0;
  StrangerLog stranger_log_;
};

}  // namespace hdt::daemon
