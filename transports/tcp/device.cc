// device.cc: see device.h.
#include "transports/tcp/device.h"

#include "base/limits.h"
#include "transports/support/hand_over.h"

namespace hdt::transport::tcp {

Result<std::unique_ptr<Device>> TcpDevice::open(std::shared_ptr<Domain> domain, const DeviceInfo& info,
                                                const Options& options) {
  Result<SocketAddress> local = SocketAddress::from_host(info.address, 0);
  if (!local.is_ok()) return local.status();
  // Says now, and not at the first connect, that the address is not one of this node.
  if (Result<Fd> probe = open_connector(local.value()); !probe.is_ok()) return probe.status();
  std::unique_ptr<TcpDevice> device(new TcpDevice(std::move(domain), info, local.value(), options));
  HDT_RETURN_IF_ERROR(device->state_.loop.open());
  return std::unique_ptr<Device>(std::move(device));
}

TcpDevice::TcpDevice(std::shared_ptr<Domain> domain, DeviceInfo info, SocketAddress local,
                     const Options& options)
    : local_(local), state_(std::move(domain), options, std::move(info)) {
  state_.domain->devices.insert(this);
}

TcpDevice::~TcpDevice() { state_.domain->devices.erase(this); }

Result<std::string> TcpDevice::listen(uint16_t port) {
  if (listener_) return Status(Code::kInvalidUsage, state_.nic.name + " listens already");
  Result<SocketAddress> local = SocketAddress::from_host(state_.nic.address, port);
  if (!local.is_ok()) return local.status();
  auto listener = std::make_unique<Listener>(
      state_.loop, [this](Fd fd) { on_accept(std::move(fd)); },
      [] { return refusal(descriptor_limit_reached()); });
  Result<std::string> address = listener->open(local.value());
  if (address.is_ok()) listener_ = std::move(listener);
  return address;
}

void TcpDevice::on_accept(Fd fd) {
  auto connection = std::make_unique<TcpConnection>(state_);
  // A socket that died between accept and here was never reported, so there is nobody to tell.
  if (!connection->accept(std::move(fd)).is_ok()) return;
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
}

Result<Connection*> TcpDevice::connect(const std::string& address, int64_t timeout_ms) {
  Result<SocketAddress> remote = SocketAddress::parse_remote(address, local_);
  if (!remote.is_ok()) return remote.status();
  auto connection = std::make_unique<TcpConnection>(state_);
  HDT_RETURN_IF_ERROR(connection->connect(local_, remote.value(), timeout_ms));
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
  return key;
}

Result<RegionKey> TcpDevice::register_memory(void* base, size_t bytes, int /*fd*/) {
  return state_.domain->add(base, bytes);
}

void TcpDevice::deregister_memory(const RegionKey& key) { state_.domain->remove(key); }

Status TcpDevice::grant(const RegionKey& key, const PeerName& peer) {
  return state_.domain->grant(key, peer);
}

void TcpDevice::revoke(const RegionKey& key, const PeerName& peer) { state_.domain->revoke(key, peer); }

void TcpDevice::on_withdrawn(uint64_t region, const RegionTable* of) {
  for (auto& [unused, connection] : connections_) connection->on_withdrawn(region, of);
}

bool TcpDevice::poll(std::vector<Completion>& completions) {
  state_.arena.reset();
  const bool flushed = !state_.unflushed.empty();
  state_.loop.set_polling(true);  // what is reported from here on is handed over below
  flush_unflushed();
  const bool resumed = read_on();
  const bool dispatched = state_.loop.dispatch();
  state_.loop.set_polling(false);
  if (!state_.unread.empty()) state_.loop.wake();
  const bool reported = hand_over(state_.pending, completions);
  return flushed || resumed || dispatched || reported;
}

void TcpDevice::flush_unflushed() {
  flushing_.swap(state_.unflushed);
  for (TcpConnection* connection : flushing_) connection->flush();
  flushing_.clear();
}

bool TcpDevice::read_on() {
  if (state_.unread.empty()) return false;
  flushing_.swap(state_.unread);
  for (TcpConnection* connection : flushing_) connection->read_on();
  flushing_.clear();
  return true;
}

void TcpDevice::release(Connection* connection) { connections_.erase(connection); }

}  // namespace hdt::transport::tcp
