// control_network.h: connections between the control threads of daemons: dialling, handshake, and messages of up to
// kMaxControlBytes, cut to the transport's size. On the tcp backend, whatever moves the payload.
#pragma once

#include <cstdint>
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
  transport::DeviceInfo device;
  uint16_t port = 0;
  int64_t connect_ms = 10'000;
  std::function<void(ChannelId, std::span<const std::byte>)> on_message;
  std::function<void(ChannelId, const Status&)> on_closed;
};

class ControlNetwork {
 public:
  explicit ControlNetwork(ControlNetworkOptions options);

  Status start();
  const std::string& address() const { return address_; }
  // Listens at "address:port" as well (HDT_RENDEZVOUS); once is enough for all groups that meet there.
  Status listen_at(const std::string& address);

  // Never 0. Messages may be sent at once; they go out when the handshake is done. Failure comes as on_closed.
  ChannelId dial(const std::string& address);
  void send(ChannelId channel, std::span<const std::byte> message);

  bool poll();
  void on_time();
  std::optional<Deadline> next_time() const;
  // Descriptors to sleep on; new ones may appear after listen_at().
  std::vector<int> fds() const;

 private:
  struct Channel {
    ChannelId id = 0;
    transport::Connection* connection = nullptr;
    transport::Device* device = nullptr;
    Handshake handshake;
    Deadline until;                                // of the handshake
    std::vector<std::vector<std::byte>> waiting;   // until the handshake is done
    std::vector<std::byte> partial;                // of an incoming message
    std::string refused;                           // why we closed it
  };

  Result<transport::Device*> open(const std::string& address, uint16_t port, std::string* listening);
  void on_completion(transport::Device& device, const transport::Completion& completion);
  void on_bytes(Channel& channel, std::span<const std::byte> bytes);
  void send_now(Channel& channel, std::span<const std::byte> message);
  void close(Channel& channel, const std::string& why);

  ControlNetworkOptions options_;
  std::unique_ptr<transport::Backend> backend_;
  std::vector<std::unique_ptr<transport::Device>> devices_;
  std::map<std::string, bool> listening_;
  std::string address_;
  std::vector<transport::Completion> completions_;
  std::unordered_map<transport::Connection*, std::unique_ptr<Channel>> by_connection_;
  std::map<ChannelId, Channel*> by_id_;
  std::vector<std::pair<ChannelId, Status>> failed_dials_;  // reported by the next poll()
  ChannelId next_id_ = 1;
};

}  // namespace hdt::daemon
