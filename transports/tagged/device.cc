// device.cc: one device of the backends ofi and ucx; see device.h.
#include "transports/tagged/device.h"

#include "transports/support/hand_over.h"

namespace hdt::transport::tagged {

Result<std::unique_ptr<Device>> TaggedDevice::open(std::shared_ptr<Domain> domain, const DeviceInfo& info,
                                                   std::unique_ptr<Fabric> fabric) {
  Result<tcp::SocketAddress> local = tcp::SocketAddress::from_host(info.address, 0);
  if (!local.is_ok()) return local.status();
  // A socket is bound to the address for a moment: an address that is not of this node is refused now, and
  // not by the first connect.
  if (Result<tcp::Fd> probe = tcp::open_connector(local.value()); !probe.is_ok()) return probe.status();
  std::unique_ptr<TaggedDevice> device(
      new TaggedDevice(std::move(domain), info, local.value(), std::move(fabric)));
  HDT_RETURN_IF_ERROR(device->state_.loop.open());
  return std::unique_ptr<Device>(std::move(device));
}

TaggedDevice::TaggedDevice(std::shared_ptr<Domain> domain, DeviceInfo info, tcp::SocketAddress local,
                           std::unique_ptr<Fabric> fabric)
    : info_(std::move(info)), local_(local), state_(std::move(domain), std::move(fabric)) {
  state_.domain->devices.insert(this);
}

TaggedDevice::~TaggedDevice() { state_.domain->devices.erase(this); }

Result<std::string> TaggedDevice::listen(uint16_t port) {
  if (listener_) return Status(Code::kInvalidUsage, info_.name + " listens already");
  Result<tcp::SocketAddress> local = tcp::SocketAddress::from_host(info_.address, port);
  if (!local.is_ok()) return local.status();
  // Without a refusal: a control socket has no item for one, and the peer would read its text as the
  // message of a stranger.
  auto listener = std::make_unique<tcp::Listener>(
      state_.loop, [this](tcp::Fd fd) { on_accept(std::move(fd)); }, nullptr);
  Result<std::string> address = listener->open(local.value());
  if (address.is_ok()) listener_ = std::move(listener);
  return address;
}

void TaggedDevice::on_accept(tcp::Fd fd) {
  auto connection = std::make_unique<TaggedConnection>(state_);
  // A socket that died between accept and here was never reported, so its owner does not know of it.
  if (!connection->accept(std::move(fd)).is_ok()) return;
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
}

// A connection that could not be begun is destroyed here.
Result<Connection*> TaggedDevice::connect(const std::string& address, int64_t timeout_ms) {
  Result<tcp::SocketAddress> remote = tcp::SocketAddress::parse_remote(address, local_);
  if (!remote.is_ok()) return remote.status();
  auto connection = std::make_unique<TaggedConnection>(state_);
  HDT_RETURN_IF_ERROR(connection->connect(local_, remote.value(), timeout_ms));
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
  return key;
}

Result<RegionKey> TaggedDevice::register_memory(void* base, size_t bytes, int /*fd*/) {
  return state_.domain->add(base, bytes);
}

void TaggedDevice::deregister_memory(const RegionKey& key) { state_.domain->remove(key); }

Status TaggedDevice::grant(const RegionKey& key, const PeerName& peer) {
  return state_.domain->grant(key, peer);
}

void TaggedDevice::revoke(const RegionKey& key, const PeerName& peer) { state_.domain->revoke(key, peer); }

void TaggedDevice::on_withdrawn(uint64_t region, const RegionTable* of) {
  for (auto& [unused, connection] : connections_) connection->on_withdrawn(region, of);
}

// 1. Sockets and descriptors that have events are handled; they make connections hot.
// 2. Hot connections work on their data paths.
// 3. If any stays hot, the device wakes itself, so that event_fd() is readable and the owner polls again.
// 4. Everything reported is handed over.
bool TaggedDevice::poll(std::vector<Completion>& completions) {
  state_.arena.reset();
  state_.loop.set_polling(true);  // reports from here on are handed over below, so they need no wake-up
  const bool dispatched = state_.loop.dispatch();
  const bool worked = work_on_hot();
  state_.loop.set_polling(false);
  if (!state_.hot.empty()) state_.loop.wake();
  const bool reported = hand_over(state_.pending, completions);
  return dispatched || worked || reported;
}

// Each connection is cold before it works: whatever makes it hot in the meantime puts it on the new list.
// Work does not free connections, which only release() does.
bool TaggedDevice::work_on_hot() {
  working_.swap(state_.hot);
  bool again = false;
  for (TaggedConnection* connection : working_) {
    connection->set_cold();
    if (!connection->work()) continue;
    connection->heat();
    again = true;
  }
  working_.clear();
  return again;
}

void TaggedDevice::release(Connection* connection) { connections_.erase(connection); }

}  // namespace hdt::transport::tagged
