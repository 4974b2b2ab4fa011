// device.h: a NIC with a library opened on it, as a Device of the backends ofi and ucx: it listens,
// connects, and polls its connections. Its EventLoop holds the control sockets, the deadlines, and the
// descriptors of the data paths.
#pragma once

#include <memory>
#include <unordered_map>

#include "transports/net/listener.h"
#include "transports/tagged/connection.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

// Made by a backend's open(), owned by the engine and used on its thread. It owns its connections and the
// Fabric, and is in the Domain's set of devices while it lives.
//
// A connection with something to do is "hot": the next poll() works on it. It stays hot until its data path
// has nothing more to do and is armed, so that nothing is missed before the engine sleeps.
class TaggedDevice final : public Device {
 public:
  // `fabric`: the library, opened on this NIC. kSystem if the address is not one of this node, or a
  // descriptor cannot be had.
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
  // Called by the Domain for a region that was deregistered or revoked (shared_regions.h).
  void on_withdrawn(uint64_t region, const RegionTable* of);

 private:
  TaggedDevice(std::shared_ptr<Domain> domain, DeviceInfo info, tcp::SocketAddress local,
               std::unique_ptr<Fabric> fabric);
  // The listener's call.
  void on_accept(tcp::Fd fd);
  // Works on all hot connections; true if any is still hot.
  bool work_on_hot();

  DeviceInfo info_;
  tcp::SocketAddress local_;  // port 0
  DeviceState state_;
  std::unique_ptr<tcp::Listener> listener_;  // null: does not listen
  std::unordered_map<Connection*, std::unique_ptr<TaggedConnection>> connections_;
  std::vector<TaggedConnection*> working_;  // the list that is worked on; empty between calls
};

}  // namespace hdt::transport::tagged
