// device.cc: see device.h.
#include "transports/tcp/device.h"

#include <sys/random.h>

#include <cerrno>
#include <iterator>

namespace hdt::transport::tcp {

Result<std::unique_ptr<Device>> TcpDevice::open(std::shared_ptr<Domain> domain, const DeviceInfo& info) {
  Result<SocketAddress> local = SocketAddress::from_host(info.address, 0);
  if (!local.is_ok()) return local.status();
  // Says now, and not at the first connect, that the address is not one of this node.
  if (Result<Fd> probe = open_connector(local.value()); !probe.is_ok()) return probe.status();
  std::unique_ptr<TcpDevice> device(new TcpDevice(std::move(domain), info, local.value()));
  HDT_RETURN_IF_ERROR(device->state_.loop.open());
  return std::unique_ptr<Device>(std::move(device));
}

TcpDevice::TcpDevice(std::shared_ptr<Domain> domain, DeviceInfo info, SocketAddress local)
    : info_(std::move(info)), local_(local), state_(std::move(domain)) {
  state_.domain->devices.insert(this);
}

TcpDevice::~TcpDevice() { state_.domain->devices.erase(this); }

Result<std::string> TcpDevice::listen(uint16_t port) {
  if (listener_) return Status(Code::kInvalidUsage, info_.name + " listens already");
  Result<SocketAddress> local = SocketAddress::from_host(info_.address, port);
  if (!local.is_ok()) return local.status();
  auto listener = std::make_unique<Listener>(state_.loop, [this](Fd fd) { on_accept(std::move(fd)); });
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
  Result<SocketAddress> remote = SocketAddress::parse(address);
  if (!remote.is_ok()) return remote.status();
  if (remote.value().family() != local_.family()) {
    return Status(Code::kInvalidArgument, "cannot connect from " + info_.address + " to " + address +
                                              ": one is IPv4, the other IPv6");
  }
  auto connection = std::make_unique<TcpConnection>(state_);
  HDT_RETURN_IF_ERROR(connection->connect(local_, remote.value(), timeout_ms));
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
  return key;
}

Result<RegionKey> TcpDevice::register_memory(void* base, size_t bytes, int /*fd*/) {
  if (base == nullptr || bytes == 0) return Status(Code::kInvalidArgument, "cannot register no memory");
  uint64_t key = 0;
  do {
    if (::getrandom(&key, sizeof key, 0) != sizeof key) return Status::from_errno("cannot draw a key", errno);
  } while (key == 0 || !state_.domain->regions.add(key, base, bytes));
  return to_region_key(key);
}

void TcpDevice::deregister_memory(const RegionKey& key) {
  state_.domain->regions.remove(from_region_key(key));
  for (TcpDevice* device : state_.domain->devices) device->on_deregistered(from_region_key(key));
}

void TcpDevice::on_deregistered(uint64_t region) {
  for (auto& [unused, connection] : connections_) connection->on_deregistered(region);
}

bool TcpDevice::poll(std::vector<Completion>& completions) {
  state_.arena.reset();
  const bool flushed = !state_.unflushed.empty();
  state_.loop.set_polling(true);  // what is reported from here on is handed over below
  flush_unflushed();
  const bool dispatched = state_.loop.dispatch();
  state_.loop.set_polling(false);
  const bool reported = !state_.pending.empty();
  completions.insert(completions.end(), std::make_move_iterator(state_.pending.begin()),
                     std::make_move_iterator(state_.pending.end()));
  state_.pending.clear();
  return flushed || dispatched || reported;
}

void TcpDevice::flush_unflushed() {
  flushing_.swap(state_.unflushed);
  for (TcpConnection* connection : flushing_) connection->flush();
  flushing_.clear();
}

void TcpDevice::release(Connection* connection) { connections_.erase(connection); }

}  // namespace hdt::transport::tcp
