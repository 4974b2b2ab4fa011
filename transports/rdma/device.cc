// device.cc: one rdma device; see device.h. All work is done in poll().
#include "transports/rdma/device.h"

#include <sys/epoll.h>

#include <cerrno>

#include "transports/rdma/discovery.h"
#include "transports/support/hand_over.h"

namespace hdt::transport::rdma {

namespace {
// Connect requests that may wait.
constexpr int kBacklog = 512;
// While completions keep coming, the descriptors are looked at only in every so many polls.
constexpr int kBusyPolls = 16;
}  // namespace

// The adapter is the one that rdma_cm gives for the address, whatever `info.name` is: that is a network
// interface.
Result<std::unique_ptr<Device>> RdmaDevice::open(std::shared_ptr<Domain> domain, const DeviceInfo& info) {
  Result<tcp::SocketAddress> local = tcp::SocketAddress::from_host(info.address, 0);
  if (!local.is_ok()) return local.status();
  Result<AdapterPort> adapter = adapter_of(domain->verbs(), local.value());
  if (!adapter.is_ok()) return adapter.status();
  Result<Nic*> nic = domain->nic(adapter.value().device);
  if (!nic.is_ok()) return nic.status();
  std::unique_ptr<RdmaDevice> device(new RdmaDevice(std::move(domain), *nic.value(), info));
  HDT_RETURN_IF_ERROR(device->start(local.value(), adapter.value().port));
  return std::unique_ptr<Device>(std::move(device));
}

RdmaDevice::RdmaDevice(std::shared_ptr<Domain> domain, Nic& nic, DeviceInfo info)
    : info_(std::move(info)), state_(std::move(domain), nic) {
  state_.domain->devices.insert(this);
  nic.add(this);
}

// Connections first: their ids and queue pairs must be destroyed before the event channel and the
// completion queues.
RdmaDevice::~RdmaDevice() {
  connections_.clear();
  stop_listening();
  if (state_.channel != nullptr) state_.nic.verbs().destroy_event_channel(state_.channel);
  state_.nic.remove(this);
  state_.domain->devices.erase(this);
}

// The adapter's own values of speed, MTU and state replace those of the network interface.
Status RdmaDevice::start(const tcp::SocketAddress& local, uint8_t port) {
  state_.local = local;
  port_ = port;
  HDT_RETURN_IF_ERROR(state_.loop.open());
  HDT_RETURN_IF_ERROR(state_.queues.open());
  state_.channel = state_.nic.verbs().create_event_channel();
  if (state_.channel == nullptr) return Status::from_errno("cannot make an rdma_cm channel", errno);
  HDT_RETURN_IF_ERROR(state_.loop.add(state_.channel->fd, &cm_source_, EPOLLIN));
  HDT_RETURN_IF_ERROR(state_.loop.add(state_.queues.fd(), &completions_source_, EPOLLIN));
  HDT_RETURN_IF_ERROR(state_.loop.add(state_.nic.async_fd(), &async_source_, EPOLLIN));
  read_port(state_.nic.verbs(), state_.nic.context(), port_, info_);
  return Status::ok();
}

// The port that rdma_cm chose is read from the id.
Result<std::string> RdmaDevice::listen(uint16_t port) {
  if (listener_ != nullptr) return Status(Code::kInvalidUsage, info_.name + " listens already");
  Result<tcp::SocketAddress> local = tcp::SocketAddress::from_host(info_.address, port);
  if (!local.is_ok()) return local.status();
  Verbs& verbs = state_.nic.verbs();
  listener_ = verbs.create_id(state_.channel, nullptr);
  if (listener_ == nullptr) return Status::from_errno("cannot make an rdma_cm id", errno);
  int error = verbs.bind(listener_, local.value().get());
  if (error == 0) error = verbs.listen(listener_, kBacklog);
  if (error != 0) {
    stop_listening();
    return Status::from_errno("cannot listen on " + local.value().to_string() + " with rdma", error);
  }
  return tcp::SocketAddress(reinterpret_cast<const sockaddr*>(&listener_->route.addr.src_storage),
                            local.value().bytes())
      .to_string();
}

// Connections that were accepted go on.
void RdmaDevice::stop_listening() {
  if (listener_ != nullptr) state_.nic.verbs().destroy_id(listener_);
  listener_ = nullptr;
}

// A connection that could not be begun is destroyed here, and nothing is reported of it.
Result<Connection*> RdmaDevice::connect(const std::string& address, int64_t timeout_ms) {
  Result<tcp::SocketAddress> remote = tcp::SocketAddress::parse_remote(address, state_.local);
  if (!remote.is_ok()) return remote.status();
  if (state_.nic.removed())
    return Status(Code::kLink, "the RDMA device " + state_.nic.name() + " was removed");
  auto connection = std::make_unique<RdmaConnection>(state_);
  HDT_RETURN_IF_ERROR(connection->connect(remote.value(), timeout_ms));
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
  return key;
}

Result<RegionKey> RdmaDevice::register_memory(void* base, size_t bytes, int /*fd*/) {
  if (base == nullptr || bytes == 0) return Status(Code::kInvalidArgument, "cannot register no memory");
  return state_.domain->add_region(base, bytes);
}

// The adapter refuses what still comes for the key, which ends the connection that it comes on. If an
// adapter has not given the memory up, every connection is ended, as any of them could be writing to it.
void RdmaDevice::deregister_memory(const RegionKey& key) {
  if (state_.domain->remove_region(key)) return;
  for (RdmaDevice* device : state_.domain->devices) {
    device->fail_all("an RDMA device did not give up memory that was deregistered");
  }
}

Status RdmaDevice::grant(const RegionKey& key, const PeerName& peer) {
  return state_.domain->grant(key, peer);
}

void RdmaDevice::revoke(const RegionKey& key, const PeerName& peer) { state_.domain->revoke(key, peer); }

// id->context names the connection of an event: set by create_id() or by accept(). Events of a destroyed
// id do not come: rdma_cm drops them with it.
void RdmaDevice::on_cm_readable() {
  CmEvent event;
  while (state_.nic.verbs().next_cm_event(state_.channel, event)) {
    // Three kinds of ids: that of a request is new, the listener's, and those of connections.
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      on_request(event);
    } else if (event.id == listener_) {
      if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) stop_listening();
    } else {
      static_cast<RdmaConnection*>(event.id->context)->on_cm_event(event);
    }
  }
}

// A request while the adapter is at its limits ends in accept(), which rejects it.
void RdmaDevice::on_request(const CmEvent& event) {
  auto connection = std::make_unique<RdmaConnection>(state_);
  // A connection that fails here was never reported, so its owner does not know of it.
  if (!connection->accept(event).is_ok()) return;
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
}

// Events of a queue pair end its connection; of a port that goes down, all connections of this device, so
// that the link moves to another rail at once. Ending a connection does not change connections_: it is
// freed by release(), or by poll() if it was discarded.
void RdmaDevice::on_async_event(const AsyncEvent& event) {
  switch (event.type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      for (auto& [unused, connection] : connections_) {
        if (connection->qp_number() != event.qp_number) continue;
        connection->fail(event.type == IBV_EVENT_QP_ACCESS_ERR ? "a write outside of registered memory"
                                                               : "the queue pair broke");
      }
      return;
    case IBV_EVENT_PORT_ERR:
      if (event.port != port_) return;
      info_.up = false;
      return fail_all("port " + std::to_string(port_) + " of " + state_.nic.name() + " went down");
    // New connections find the port up again; the link dials them.
    case IBV_EVENT_PORT_ACTIVE:
      if (event.port == port_) read_port(state_.nic.verbs(), state_.nic.context(), port_, info_);
      return;
    // Some GIDs of the port changed, perhaps not that of any connection: each compares its own.
    case IBV_EVENT_GID_CHANGE:
      if (event.port != port_) return;
      for (auto& [unused, connection] : connections_) connection->check_gid();
      return;
    // The adapter was removed, or is broken beyond repair.
    case IBV_EVENT_DEVICE_FATAL:
      info_.up = false;
      for (auto& [unused, connection] : connections_) connection->on_removal();
      return;
    default:
      return;
  }
}

// The connections stay in the map until they are released.
void RdmaDevice::fail_all(const std::string& reason) {
  for (auto& [unused, connection] : connections_) connection->fail(reason);
}

// 1. Strangers hand over the messages that were held, and what the owner has posted goes to the adapter.
// 2. Completions are drained. The descriptors are asked if there were none, or every kBusyPolls polls.
// 3. The requests that completions have caused (credits, the next frames) go to the adapter.
// 4. If nothing was found, the adapter is asked for an event, and the queues are drained once more: a
//    completion may have come before the request.
// 5. If there is or may be more to do, the device wakes itself.
bool RdmaDevice::poll(std::vector<Completion>& completions) {
  state_.arena.reset();
  state_.loop.set_polling(true);  // reports from here on are handed over below, so they need no wake-up
  release_held();
  flush_unflushed();
  size_t handled = drain_completions();
  bool dispatched = false;
  if (handled == 0 || ++busy_polls_ >= kBusyPolls) {
    busy_polls_ = 0;
    dispatched = state_.loop.dispatch();
    handled += drain_completions();
  }
  flush_unflushed();
  if (handled == 0 && !state_.queues.armed()) {
    state_.queues.arm();
    handled = drain_completions();
    flush_unflushed();
  }
  for (RdmaConnection* connection : state_.discarded) connections_.erase(connection);
  state_.discarded.clear();
  state_.loop.set_polling(false);
  if (handled > 0 || !state_.unflushed.empty() || !state_.holding.empty()) state_.loop.wake();
  const bool reported = hand_over(state_.pending, completions);
  return handled > 0 || dispatched || reported;
}

// The upper half of a request's id names its connection (request_id()).
size_t RdmaDevice::drain_completions() {
  return state_.queues.drain([this](const ibv_wc& completion) {
    const auto found = state_.by_number.find(static_cast<uint32_t>(completion.wr_id >> 32));
    // A number that is not there is that of a connection that has ended.
    if (found != state_.by_number.end()) found->second->on_completion(completion);
  });
}

// The list is swapped first: a connection may enter it again while it is worked on.
void RdmaDevice::flush_unflushed() {
  flushing_.swap(state_.unflushed);
  for (RdmaConnection* connection : flushing_) connection->flush();
  flushing_.clear();
}

// Swapped for the same reason: a stranger enters the list again with its next message.
void RdmaDevice::release_held() {
  releasing_.swap(state_.holding);
  for (RdmaConnection* connection : releasing_) connection->release_held();
  releasing_.clear();
}

void RdmaDevice::release(Connection* connection) { connections_.erase(connection); }

}  // namespace hdt::transport::rdma
