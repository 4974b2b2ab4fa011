// device.cc: a device of a FakeNetwork (see device.h). poll() delivers to this device's connections;
// everything else only changes state and wakes the devices that have something to do.
#include "transports/fake/device.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "transports/support/hand_over.h"

namespace hdt::transport::fake {

Result<std::unique_ptr<Device>> FakeDevice::open(std::shared_ptr<NetworkState> network,
                                                 std::shared_ptr<Domain> domain, const DeviceInfo& info) {
  if (info.address.empty()) return Status(Code::kInvalidArgument, "a device needs an address");
  const int event_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd < 0) return Status::from_errno("cannot make an eventfd", errno);
  return std::unique_ptr<Device>(new FakeDevice(std::move(network), std::move(domain), info, event_fd));
}

FakeDevice::FakeDevice(std::shared_ptr<NetworkState> network, std::shared_ptr<Domain> domain, DeviceInfo info,
                       int event_fd)
    : network_(std::move(network)), domain_(std::move(domain)), info_(std::move(info)), event_fd_(event_fd) {
  const std::lock_guard lock(network_->mutex);
  network_->devices.insert(this);
  domain_->devices.insert(this);
}

// The device leaves the lists of the network and its domain before anything is freed, so that nobody finds
// it.
FakeDevice::~FakeDevice() {
  {
    // The peers see a connection that was lost. Its ends are destroyed with the mutex held, as they leave
    // their pipes.
    const std::lock_guard lock(network_->mutex);
    network_->devices.erase(this);
    domain_->devices.erase(this);
    network_->listeners.erase(listening_);
    const Status gone(Code::kLink, "the peer closed without a goodbye");
    for (const auto& connection : connections_) {
      if (!connection->finished()) connection->finish(gone, gone, gone);
    }
    connections_.clear();
  }
  ::close(event_fd_);
}

// The address is "address:port" in a name space of this network alone; no system port is taken.
Result<std::string> FakeDevice::listen(uint16_t port) {
  const std::lock_guard lock(network_->mutex);
  if (!listening_.empty()) return Status(Code::kInvalidUsage, info_.name + " listens already");
  if (port == 0) port = network_->next_port++;
  const std::string address = info_.address + ":" + std::to_string(port);
  if (!network_->listeners.emplace(address, this).second) {
    return Status(Code::kSystem, "cannot listen on " + address + ": in use");
  }
  listening_ = address;
  return address;
}

// The outcome is known at once: nobody answers, it is refused, or both ends are made here. It is reported by
// poll(), as the contract demands.
Result<Connection*> FakeDevice::connect(const std::string& address, int64_t timeout_ms) {
  const std::lock_guard lock(network_->mutex);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return Status(Code::kInvalidArgument, "address '" + address + "': expected host:port");
  }
  // `there` carries what this end sends, `back` what the other end sends.
  auto there = std::make_shared<Pipe>();
  auto back = std::make_shared<Pipe>();
  there->from = info_.address;
  back->from = address.substr(0, colon);
  FakeConnection* connection = add_connection(address, back, there);
  const auto listener = network_->listeners.find(address);
  if (network_->unreachable.count(back->from) > 0) {
    connection->fail("cannot connect: no answer within " + std::to_string(timeout_ms) + " ms");
  } else if (listener == network_->listeners.end() || network_->faults_of(info_.address).refuse_connects) {
    connection->refuse();
  } else {
    // This end opens with its next poll(), which reports kConnected. The listener's end is open at once, and
    // its device is woken by the report.
    opening_.push_back(connection);
    report(Completion::Kind::kConnected, connection);
    FakeConnection* other = listener->second->add_connection(connection->local_address(), there, back);
    other->open();
    listener->second->report(Completion::Kind::kAccepted, other);
  }
  return connection;
}

// Every end gets a port of its own, so that addresses tell connections apart.
FakeConnection* FakeDevice::add_connection(const std::string& remote, std::shared_ptr<Pipe> in,
                                           std::shared_ptr<Pipe> out) {
  const std::string local = info_.address + ":" + std::to_string(network_->next_port++);
  connections_.push_back(
      std::make_unique<FakeConnection>(*this, local, remote, std::move(in), std::move(out)));
  return connections_.back().get();
}

// Keys come from the seed, so that a test runs in the same way every time. 0 is no key.
Result<RegionKey> FakeDevice::register_memory(void* base, size_t bytes, int /*fd*/) {
  if (base == nullptr || bytes == 0) return Status(Code::kInvalidArgument, "cannot register no memory");
  const std::lock_guard lock(network_->mutex);
  uint64_t key = 0;
  do {
    key = network_->random();
  } while (key == 0 || !domain_->regions.add(key, base, bytes));
  return to_region_key(key);
}

void FakeDevice::deregister_memory(const RegionKey& key) {
  const std::lock_guard lock(network_->mutex);
  domain_->regions.remove(from_region_key(key));
  for (FakeDevice* device : domain_->devices) device->on_withdrawn(from_region_key(key), nullptr);
}

Status FakeDevice::grant(const RegionKey& key, const PeerName& peer) {
  const std::lock_guard lock(network_->mutex);
  if (domain_->regions.grant(from_region_key(key), peer)) return Status::ok();
  return {Code::kInvalidArgument, "memory that is not registered cannot be granted"};
}

void FakeDevice::revoke(const RegionKey& key, const PeerName& peer) {
  const std::lock_guard lock(network_->mutex);
  const RegionGrants::Table table = domain_->regions.revoke(from_region_key(key), peer);
  if (table == nullptr) return;
  for (FakeDevice* device : domain_->devices) device->on_withdrawn(from_region_key(key), table.get());
}

// A write that is partly placed cannot be taken back, so its connection ends.
void FakeDevice::on_withdrawn(uint64_t region, const RegionTable* of) {
  for (const auto& connection : connections_) {
    if (connection->inside_write_to(region, of)) {
      connection->fail(
          "the memory that the peer was writing to was deregistered, or is not granted any more");
    }
  }
}

// The order of the steps: clear the signal, end the life of the messages of the poll before, open what is
// reported as connected below, deliver, hand out, and signal again if something is left.
bool FakeDevice::poll(std::vector<Completion>& completions) {
  const std::lock_guard lock(network_->mutex);
  eventfd_t ignored = 0;
  if (signalled_) ::eventfd_read(event_fd_, &ignored);
  signalled_ = false;
  arena_.reset();
  for (FakeConnection* connection : opening_) connection->open();
  opening_.clear();
  bool any = false;
  bool more = false;
  for (const auto& connection : connections_) any = connection->deliver() || any;
  for (const auto& connection : connections_) more = more || connection->has_input();
  any = hand_over(pending_, completions) || any;
  // Reporting has signalled for completions that are handed out now. The descriptor must be readable only if
  // something is left, such as a delayed frame; otherwise the owner would not sleep.
  if (signalled_ && !more) {
    ::eventfd_read(event_fd_, &ignored);
    signalled_ = false;
  }
  if (more) signal();
  return any;
}

void FakeDevice::release(Connection* connection) {
  const std::lock_guard lock(network_->mutex);
  std::erase_if(connections_, [connection](const auto& held) { return held.get() == connection; });
}

Completion& FakeDevice::report(Completion::Kind kind, FakeConnection* connection) {
  Completion& completion = pending_.emplace_back();
  completion.kind = kind;
  completion.connection = connection;
  signal();
  return completion;
}

// One write makes the eventfd readable until it is read; further ones would only cost system calls.
void FakeDevice::signal() {
  if (signalled_) return;
  signalled_ = true;
  ::eventfd_write(event_fd_, 1);
}

void FakeDevice::cut() {
  for (const auto& connection : connections_) {
    if (!connection->finished()) connection->break_wire("the cable was cut");
  }
}

}  // namespace hdt::transport::fake
