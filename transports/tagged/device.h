// device.h: a NIC with a library opened on it as a Device: listens, connects, and polls its connections.
#pragma once

#include <memory>
#include <unordered_map>

#include "transports/net/listener.h"
#include "transports/tagged/connection.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

class TaggedDevice final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<Domain> domain, const DeviceInfo& info,
                                              std::unique_ptr<Fabric> fabric);
  ~TaggedDevice() override;

  const DeviceInfo& info() const override { return info_; }
  Result<std::string> listen(uint16_t port) override;
  Result<Connection*> connect(const std::string& address, int64_t timeout_ms) override;
  Result<RegionKey> register_memory(void* base, size_t bytes, int fd) override;
  void deregister_memory(const RegionKey& key) override;
  Status grant(const RegionKey& key, const PeerName& peer) override;
  void revoke(const RegionKey& key, const PeerName& peer) override;
  bool poll(std::vector<Completion>& completions) override;
  int event_fd() const override { return state_.loop.fd(); }
  void release(Connection* connection) override;
  void on_withdrawn(uint64_t region, const RegionTable* of);

 private:
  TaggedDevice(std::shared_ptr<Domain> domain, DeviceInfo info, tcp::SocketAddress local,
               std::unique_ptr<Fabric> fabric);
  void on_accept(tcp::Fd fd);
  bool work_on_hot();

  DeviceInfo info_;
  tcp::SocketAddress local_;
  DeviceState state_;
  std::unique_ptr<tcp::Listener> listener_;
  std::unordered_map<Connection*, std::unique_ptr<TaggedConnection>> connections_;
  std::vector<TaggedConnection*> working_;
};

}  // namespace hdt::transport::tagged
