// device.cc: one tcp device; see device.h. poll() is the only place where work is done: it sends what
// was queued, reads what has arrived, and hands over what is to be reported.
#include "transports/tcp/device.h"

#include "base/limits.h"
#include "transports/net/attempt.h"
#include "transports/support/hand_over.h"

namespace hdt::transport::tcp {

Result<std::unique_ptr<Device>> TcpDevice::open(std::shared_ptr<Domain> domain, const DeviceInfo& info,
                                                const Options& options) {
  Result<SocketAddress> local = SocketAddress::from_host(info.address, 0);
  if (!local.is_ok()) return local.status();
  // A socket is bound to the address for a moment: an address that is not of this node is refused now,
  // and not by the first connect.
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

// Peers for which there is no descriptor get a kRefused frame with the limit as its reason.
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
  TcpConnection* const connection = keep(std::make_unique<TcpConnection>(state_));
  bool accepted = false;
  (void)attempt([&] { accepted = connection->accept(std::move(fd)).is_ok(); });
  // A socket that died between accept and here was never reported, so its owner does not know of it.
  if (!accepted) connections_.erase(connection);
}

// The connection enters the map before it connects or is accepted. If the insertion threw later,
// completions of it would be reported that name no connection.
TcpConnection* TcpDevice::keep(std::unique_ptr<TcpConnection> connection) {
  make_room();
  TcpConnection* const kept = connection.get();
  connections_.emplace(kept, std::move(connection));
  return kept;
}

// Each connection is in each list once at most. With room for all of them, entering a list allocates
// nothing and cannot throw, which queued_something() and look_again_soon() rely on. The capacity
// doubles, so that it is rarely reserved.
void TcpDevice::make_room() {
  const size_t all = connections_.size() + 1;
  for (auto* list : {&flushing_, &state_.unflushed, &state_.unread}) {
    if (list->capacity() < all) list->reserve(2 * all);
  }
}

Result<Connection*> TcpDevice::connect(const std::string& address, int64_t timeout_ms) {
  Result<SocketAddress> remote = SocketAddress::parse_remote(address, local_);
  if (!remote.is_ok()) return remote.status();
  TcpConnection* const connection = keep(std::make_unique<TcpConnection>(state_));
  Status begun(Code::kSystem, "no memory");  // the text is short, so it takes no memory
  (void)attempt([&] { begun = connection->connect(local_, remote.value(), timeout_ms); });
  if (begun.is_ok()) return static_cast<Connection*>(connection);
  connections_.erase(connection);
  return begun;
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
  for (auto& entry : connections_) {
    TcpConnection* const connection = entry.second.get();
    (void)attempt_for(*connection, [&] { connection->on_withdrawn(region, of); });
  }
}

// 1. Messages reported last time are not read any more, so the arena is emptied, unless the hand-over
//    failed.
// 2. Frames that were queued since the last poll() are sent; buffered bytes are parsed; epoll is asked
//    once.
// 3. If a connection still has buffered bytes, the device wakes itself: epoll would not report them.
// 4. Everything reported is handed over. If there is no memory for that, nothing is lost, and the device
//    wakes itself to try again.
bool TcpDevice::poll(std::vector<Completion>& completions) {
  ++state_.polls;
  if (!state_.messages_pending) state_.arena.reset();
  const bool flushed = !state_.unflushed.empty();
  state_.loop.set_polling(true);  // reports from here on are handed over below, so they need no wake-up
  flush_unflushed();
  const bool resumed = read_on();
  const bool dispatched = state_.loop.dispatch();
  state_.loop.set_polling(false);
  if (!state_.unread.empty()) state_.loop.wake();
  bool reported = false;
  (void)attempt(
      [&] {
        report_lost();
        reported = hand_over(state_.pending, completions);
        state_.messages_pending = false;
      },
      [this] { state_.loop.wake(); });  // it is handed over next time
  return flushed || resumed || dispatched || reported;
}

// The list is swapped first: a connection may enter it again while it is worked on.
void TcpDevice::flush_unflushed() {
  flushing_.swap(state_.unflushed);
  for (TcpConnection* connection : flushing_) {
    (void)attempt_for(*connection, [connection] { connection->flush(); });
  }
  flushing_.clear();
}

bool TcpDevice::read_on() {
  if (state_.unread.empty()) return false;
  flushing_.swap(state_.unread);
  for (TcpConnection* connection : flushing_) {
    (void)attempt_for(*connection, [connection] { connection->read_on(); });
  }
  flushing_.clear();
  return true;
}

// Looks through all connections only if one is lost, which is rare.
void TcpDevice::report_lost() {
  for (auto& [key, connection] : connections_) {
    if (state_.lost == 0) return;
    connection->report_lost();
  }
}

void TcpDevice::release(Connection* connection) { connections_.erase(connection); }

}  // namespace hdt::transport::tcp
