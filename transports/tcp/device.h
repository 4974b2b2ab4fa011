// device.h: a NIC's address as a Device: listens, connects, and polls its connections.
#pragma once

#include <memory>
#include <unordered_map>

#include "transports/net/listener.h"
#include "transports/several_connections.h"
#include "transports/tcp/connection.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

class TcpDevice final : public Device, public SeveralConnections {
 public:
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
  size_t connections() const override { return sockets_for(state_.options, state_.nic.bits_per_second); }
  void on_withdrawn(uint64_t region, const RegionTable* of);

 private:
  TcpDevice(std::shared_ptr<Domain> domain, DeviceInfo info, SocketAddress local, const Options& options);
  void on_accept(Fd fd);
  TcpConnection* keep(std::unique_ptr<TcpConnection> connection);
  void make_room();
  void flush_unflushed();
  bool read_on();
  void report_lost();

  SocketAddress local_;
  DeviceState state_;
  std::unique_ptr<Listener> listener_;
  std::unordered_map<Connection*, std::unique_ptr<TcpConnection>> connections_;
  std::vector<TcpConnection*> flushing_;
};

}  // namespace hdt::transport::tcp
