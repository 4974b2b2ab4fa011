#include "daemon/control_network.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/address.h"
#include "base/log.h"
#include "session/segment.h"
#include "transports/subnet.h"

namespace hdt::daemon {

using transport::Completion;

namespace {

// First byte of every transport message on an established channel.
constexpr std::byte kMore{0}, kLast{1};
constexpr size_t kPart = transport::kMaxMessageBytes - 1;
// An address that has not answered for so long is not waited for alone.
constexpr int64_t kNextAddressMs = 250;

std::vector<std::string> split(const std::string& addresses) {
  std::vector<std::string> list;
  std::istringstream text(addresses);
  for (std::string address; std::getline(text, address, ',');) list.push_back(address);
  return list;
}

bool has(const std::vector<std::string>& list, const std::string& address) {
  return std::find(list.begin(), list.end(), address) != list.end();
}

}  // namespace

ControlNetwork::ControlNetwork(ControlNetworkOptions options)
    : options_(std::move(options)), backend_(transport::make_tcp_backend()) {}

Result<transport::Device*> ControlNetwork::open(const transport::DeviceInfo& info, uint16_t port,
                                                std::string* listening) {
  auto device = backend_->open(info);
  if (!device.is_ok()) return device.status();
  auto at = device.value()->listen(port);
  if (!at.is_ok()) return at.status();
  *listening = at.take();
  devices_.push_back(device.take());
  return devices_.back().get();
}

Status ControlNetwork::start() {
  for (const transport::DeviceInfo& nic : options_.devices) {
    std::string at;
    if (const Status opened = open(nic, options_.port, &at).status(); !opened.is_ok()) {
      if (address_.empty()) return opened;
      HDT_LOG_WARN("{} takes no control connections: {} {}", nic.name, opened.message(),
                   LogTag{.node = options_.node_name});
      continue;
    }
    ++nics_;
    if (address_.size() + 1 + at.size() >= session::kMaxAddressBytes) continue;
    address_ += (address_.empty() ? "" : ",") + at;
  }
  return Status::ok();
}

Status ControlNetwork::listen_at(const std::string& address) {
  if (has(split(address_), address) || listening_.contains(address)) return Status::ok();
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  if (colon == std::string::npos || std::from_chars(address.data() + colon + 1, end, port).ptr != end ||
      port == 0) {
    return {Code::kInvalidArgument, "rendezvous '" + address + "' is not of the form address:port"};
  }
  std::string at;
  transport::DeviceInfo info = options_.devices.front();
  info.address = address.substr(0, colon);
  HDT_RETURN_IF_ERROR(open(info, port, &at).status());
  listening_.emplace(address, true);
  return Status::ok();
}

ControlNetwork::Channel& ControlNetwork::add_channel(Handshake::Role role) {
  const PeerHello own{Purpose::kControl, options_.node, options_.node_name, 0, 0};
  const ChannelId id = next_id_++;
  return channels_.try_emplace(id, id, Handshake(role, own, options_.cluster_key)).first->second;
}

ChannelId ControlNetwork::dial(const std::string& addresses) {
  Channel& channel = add_channel(Handshake::Role::kDialer);
  const ChannelId id = channel.id;
  const auto all = split(addresses);
  channel.untried.assign(all.begin(), all.end());
  try_next(channel, {Code::kInvalidArgument, "no address of a daemon is given"});
  return id;
}

// A NIC of the address's subnet; where there are several, or none, each in turn.
transport::Device& ControlNetwork::device_for(const std::string& address, size_t tries) {
  std::vector<transport::Device*> all, near;
  for (size_t i = 0; i < nics_; ++i) {
    all.push_back(devices_[i].get());
    if (transport::in_subnet(devices_[i]->info(), host_of(address))) near.push_back(all.back());
  }
  const auto& fitting = near.empty() ? all : near;
  return *fitting[tries % fitting.size()];
}

void ControlNetwork::try_next(Channel& channel, Status why) {
  while (!channel.untried.empty()) {
    const std::string address = std::move(channel.untried.front());
    channel.untried.pop_front();
    transport::Device& device = device_for(address, channel.tries++);
    auto connection = device.connect(address, options_.connect_ms);
    if (!connection.is_ok()) {
      why = connection.status();
      continue;
    }
    ++channel.trying;
    routes_[connection.value()] = {channel.id, &device};
    channel.next_try = channel.untried.empty() ? Deadline::never() : Deadline::after_ms(kNextAddressMs);
    return;
  }
  channel.next_try = Deadline::never();
  if (channel.trying > 0) return;
  failed_dials_.emplace_back(channel.id, why);
  channels_.erase(channel.id);
}

void ControlNetwork::send(ChannelId id, std::span<const std::byte> message) {
  const auto found = channels_.find(id);
  if (found == channels_.end()) return;  // on_closed has told, or is about to
  Channel& channel = found->second;
  if (channel.handshake.done()) {
    send_now(channel, message);
  } else {
    channel.waiting.emplace_back(message.begin(), message.end());
  }
}

void ControlNetwork::send_now(Channel& channel, std::span<const std::byte> message) {
  do {
    const size_t size = std::min(kPart, message.size());
    std::vector<std::byte> part;
    part.reserve(size + 1);
    part.push_back(size == message.size() ? kLast : kMore);
    part.insert(part.end(), message.begin(), message.begin() + static_cast<ptrdiff_t>(size));
    (void)channel.connection->send(part, 0);
    message = message.subspan(size);
  } while (!message.empty());
}

void ControlNetwork::close(Channel& channel, const std::string& why) {
  channel.refused = why;
  HDT_LOG_WARN("control connection {} closed: {} {}", channel.connection->remote_address(), why,
               LogTag{.node = options_.node_name});
  channel.connection->close();
}

bool ControlNetwork::poll() {
  bool any = false;
  for (const auto& [id, why] : std::exchange(failed_dials_, {})) {
    any = true;
    options_.on_closed(id, why);
  }
  for (size_t i = 0; i < devices_.size(); ++i) {  // on_message may open more
    completions_.clear();
    any |= devices_[i]->poll(completions_);
    const auto completions = std::exchange(completions_, {});
    for (const Completion& completion : completions) on_completion(*devices_[i], completion);
  }
  return any;
}

void ControlNetwork::on_completion(transport::Device& device, const Completion& completion) {
  if (completion.kind == Completion::Kind::kAccepted) {
    Channel& channel = add_channel(Handshake::Role::kAcceptor);
    channel.connection = completion.connection;
    channel.until = Deadline::after_ms(options_.connect_ms);
    routes_[completion.connection] = {channel.id, &device};
    return;
  }
  const auto route = routes_.find(completion.connection);
  if (route == routes_.end()) return;
  if (completion.kind == Completion::Kind::kClosed) return on_connection_closed(completion);
  const auto found = channels_.find(route->second.channel);
  if (completion.kind == Completion::Kind::kConnected) {
    if (found == channels_.end() || found->second.connection != nullptr)
      return completion.connection->close();
    on_connected(found->second, completion.connection);
  } else if (completion.kind == Completion::Kind::kMessage && found != channels_.end() &&
             found->second.connection == completion.connection) {
    on_bytes(found->second, completion.message);
  }
}

void ControlNetwork::on_connected(Channel& channel, transport::Connection* connection) {
  channel.connection = connection;
  channel.untried.clear();
  channel.next_try = Deadline::never();
  channel.until = Deadline::after_ms(options_.connect_ms);
  for (const auto& message : channel.handshake.start()) (void)connection->send(message, 0);
}

void ControlNetwork::on_connection_closed(const Completion& completion) {
  const Route route = routes_.extract(completion.connection).mapped();
  route.device->release(completion.connection);
  const auto found = channels_.find(route.channel);
  if (found == channels_.end()) return;
  Channel& channel = found->second;
  if (channel.connection == nullptr) {
    --channel.trying;
    return try_next(channel, completion.error);
  }
  if (channel.connection != completion.connection) return;  // another one answered before
  const Status why = !channel.refused.empty() ? Status(Code::kLink, channel.refused)
                     : completion.error.is_ok()
                         ? Status(Code::kLink, "the other daemon closed the connection")
                         : completion.error;
  channels_.erase(found);
  options_.on_closed(route.channel, why);
}

void ControlNetwork::on_bytes(Channel& channel, std::span<const std::byte> bytes) {
  if (!channel.handshake.done()) {
    auto answer = channel.handshake.on_message(bytes);
    if (!answer.is_ok()) return close(channel, answer.status().message());
    for (const auto& reply : answer.value()) (void)channel.connection->send(reply, 0);
    if (!channel.handshake.done()) return;
    if (channel.handshake.peer().purpose != Purpose::kControl)
      return close(channel, "not a control connection");
    for (const auto& message : std::exchange(channel.waiting, {})) send_now(channel, message);
    return;
  }
  if (channel.partial.size() + bytes.size() > kMaxControlBytes)
    return close(channel, "a message over the limit");
  channel.partial.insert(channel.partial.end(), bytes.begin() + 1, bytes.end());
  if (bytes[0] != kLast) return;
  const auto message = std::exchange(channel.partial, {});
  options_.on_message(channel.id, message);
}

void ControlNetwork::on_time() {
  std::vector<ChannelId> due;  // trying may end a channel
  for (auto& [id, channel] : channels_) {
    if (channel.next_try.expired()) due.push_back(id);
    if (!channel.handshake.done() && channel.until.expired() && channel.refused.empty()) {
      close(channel, "no handshake in time");
    }
  }
  for (const ChannelId id : due) try_next(channels_.at(id), {Code::kLink, "no daemon answers"});
}

std::optional<Deadline> ControlNetwork::next_time() const {
  std::optional<Deadline> next;
  if (!failed_dials_.empty()) next = Deadline::after_ms(0);
  for (const auto& [id, channel] : channels_) {
    if (channel.handshake.done() || !channel.refused.empty()) continue;
    const Deadline time = Deadline::earlier(channel.until, channel.next_try);
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

std::vector<int> ControlNetwork::fds() const {
  std::vector<int> fds;
  for (const auto& device : devices_) fds.push_back(device->event_fd());
  return fds;
}

}  // namespace hdt::daemon
