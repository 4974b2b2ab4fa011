// control_network.h: connections between the control threads of daemons: dialling, handshake, and messages of up to
// kMaxControlBytes, cut to the transport's size. On the tcp backend, whatever moves the payload.
//
// A daemon listens on all its NICs, so that groups can be made while one is dead: its address is a list, "10.0.0.1:4000,10.0.1.1:4001".
// Who dials tries them in turn, the next one as soon as one fails or does not answer at once; the first that answers is used.
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
#include "daemon/handshake.h"
#include "daemon/rendezvous.h"
#include "transports/transport.h"

namespace hdt::daemon {

inline constexpr size_t kMaxControlBytes = size_t{16} << 20;

struct ControlNetworkOptions {
  NodeId node;
  std::string node_name;
  std::string cluster_key;
  std::vector<transport::DeviceInfo> devices;  // the first one must work
  uint16_t port = 0;                           // on each; 0: any
  int64_t connect_ms = 10'000;
  std::function<void(ChannelId, std::span<const std::byte>)> on_message;
  std::function<void(ChannelId, const Status&)> on_closed;
};

class ControlNetwork {
 public:
  explicit ControlNetwork(ControlNetworkOptions options);

  Status start();
  // Of as many NICs as fit into kMaxAddressBytes.
  const std::string& address() const { return address_; }
  // Listens at "address:port" as well (HDT_RENDEZVOUS); once is enough for all groups that meet there.
  Status listen_at(const std::string& address);

  // Never 0. Messages may be sent at once; they go out when the handshake is done. Failure comes as on_closed.
  ChannelId dial(const std::string& addresses);
  void send(ChannelId channel, std::span<const std::byte> message);

  bool poll();
  void on_time();
  std::optional<Deadline> next_time() const;
  // Descriptors to sleep on; new ones may appear after listen_at().
  std::vector<int> fds() const;

 private:
  struct Channel {
    Channel(ChannelId number, Handshake first) : id(number), handshake(std::move(first)) {}
    ChannelId id;
    transport::Connection* connection = nullptr;  // null: none has answered yet
    Handshake handshake;
    Deadline until = Deadline::never();     // of the handshake
    std::deque<std::string> untried;        // addresses, while none has answered
    Deadline next_try = Deadline::never();  // of them
    size_t tries = 0;
    size_t trying = 0;                            // connections under way
    std::vector<std::vector<std::byte>> waiting;  // until the handshake is done
    std::vector<std::byte> partial;               // of an incoming message
    std::string refused;                          // why we closed it
  };
  // A connection may outlive its channel: one that answers after another one did.
  struct Route {
    ChannelId channel = 0;
    transport::Device* device = nullptr;
  };

  Result<transport::Device*> open(const transport::DeviceInfo& nic, uint16_t port, std::string* listening);
  Channel& add_channel(Handshake::Role role);
  transport::Device& device_for(const std::string& address, size_t tries);
  // Connects to the next address that can be; fails the channel where none is left.
  void try_next(Channel& channel, Status why);
  void on_completion(transport::Device& device, const transport::Completion& completion);
  void on_connected(Channel& channel, transport::Connection* connection);
  void on_connection_closed(const transport::Completion& completion);
  void on_bytes(Channel& channel, std::span<const std::byte> bytes);
  void send_now(Channel& channel, std::span<const std::byte> message);
  void close(Channel& channel, const std::string& why);

  ControlNetworkOptions options_;
  std::unique_ptr<transport::Backend> backend_;
  std::vector<std::unique_ptr<transport::Device>> devices_;  // of our NICs, then those of listen_at()
  size_t nics_ = 0;
  std::map<std::string, bool> listening_;
  std::string address_;
  std::vector<transport::Completion> completions_;
  std::unordered_map<transport::Connection*, Route> routes_;
  std::map<ChannelId, Channel> channels_;
  std::vector<std::pair<ChannelId, Status>> failed_dials_;  // reported by the next poll()
  ChannelId next_id_ = 1;
};

}  // namespace hdt::daemon
