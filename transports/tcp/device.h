// device.h: an address of a NIC as a tcp Device: it listens, connects, and polls its connections. All
// its sockets are in one EventLoop, whose descriptor is event_fd().
#pragma once

#include <memory>
#include <unordered_map>

#include "transports/net/listener.h"
#include "transports/several_connections.h"
#include "transports/tcp/connection.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// Made by TcpBackend::open(), owned by the engine or by the control network, and used on the thread of
// its owner. It owns its connections. It is in the Domain's set of devices while it lives, so that
// withdrawn regions reach it.
//
// An exception that leaves a connection (for want of memory) ends that connection alone; see
// TcpConnection::on_failure().
class TcpDevice final : public Device, public SeveralConnections {
 public:
  // kSystem if the address is not one of this node, or a descriptor cannot be had; the error of
  // SocketAddress for text that is no address.
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<Domain> domain, const DeviceInfo& info,
                                              const Options& options);
  ~TcpDevice() override;

  const DeviceInfo& info() const override { return state_.nic; }
  Result<std::string> listen(uint16_t port) override;
  Result<Connection*> connect(const std::string& address, int64_t timeout_ms) override;
  Result<RegionKey> register_memory(void* base, size_t bytes, int fd) override;
  void deregister_memory(const RegionKey& key) override;
  Status grant(const RegionKey& key, const PeerName& peer) override;
  void revoke(const RegionKey& key, const PeerName& peer) override;
  bool poll(std::vector<Completion>& completions) override;
  int event_fd() const override { return state_.loop.fd(); }
  void set_attended(bool attended) override { state_.loop.set_attended(attended); }
  void release(Connection* connection) override;
  // SeveralConnections: how many connections a link should make to one NIC of a peer.
  size_t connections() const override { return sockets_for(state_.options, state_.nic.bits_per_second); }
  // Called by the Domain for a region that was deregistered or revoked (shared_regions.h).
  void on_withdrawn(uint64_t region, const RegionTable* of);

 private:
  TcpDevice(std::shared_ptr<Domain> domain, DeviceInfo info, SocketAddress local, const Options& options);
  // The listener's call: makes a connection of an accepted socket.
  void on_accept(Fd fd);
  // Takes ownership before the connection does anything.
  TcpConnection* keep(std::unique_ptr<TcpConnection> connection);
  // Reserves memory in the lists of connections.
  void make_room();
  void flush_unflushed();
  // Lets connections parse what they have read; true if there were any.
  bool read_on();
  // Reports kClosed of connections that ended in on_failure().
  void report_lost();

  SocketAddress local_;  // port 0
  DeviceState state_;
  std::unique_ptr<Listener> listener_;  // null: does not listen
  std::unordered_map<Connection*, std::unique_ptr<TcpConnection>> connections_;
  std::vector<TcpConnection*> flushing_;  // the list that is worked on; empty between calls
};

}  // namespace hdt::transport::tcp
