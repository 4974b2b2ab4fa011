#include "daemon/control_network.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"

namespace hdt::daemon {

using transport::Completion;

namespace {

// First byte of every transport message on an established channel.
constexpr std::byte kMore{0}, kLast{1};
constexpr size_t kPart = transport::kMaxMessageBytes - 1;

}  // namespace

ControlNetwork::ControlNetwork(ControlNetworkOptions options)
    : options_(std::move(options)), backend_(transport::make_tcp_backend()) {}

Result<transport::Device*> ControlNetwork::open(const std::string& address, uint16_t port, std::string* listening) {
  transport::DeviceInfo info = options_.device;
  info.address = address;
  auto device = backend_->open(info);
  if (!device.is_ok()) return device.status();
  auto at = device.value()->listen(port);
  if (!at.is_ok()) return at.status();
  *listening = at.take();
  devices_.push_back(device.take());
  return devices_.back().get();
}

Status ControlNetwork::start() { return open(options_.device.address, options_.port, &address_).status(); }

Status ControlNetwork::listen_at(const std::string& address) {
  if (address == address_ || listening_.contains(address)) return Status::ok();
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  if (colon == std::string::npos ||
      std::from_chars(address.data() + colon + 1, end, port).ptr != end || port == 0) {
    return {Code::kInvalidArgument, "rendezvous '" + address + "' is not of the form address:port"};
  }
  std::string at;
  HDT_RETURN_IF_ERROR(open(address.substr(0, colon), port, &at).status());
  listening_.emplace(address, true);
  return Status::ok();
}

ChannelId ControlNetwork::dial(const std::string& address) {
  const ChannelId id = next_id_++;
  transport::Device& device = *devices_.front();
  auto connection = device.connect(address, options_.connect_ms);
  if (!connection.is_ok()) {
    failed_dials_.emplace_back(id, connection.status());
    return id;
  }
  const PeerHello own{Purpose::kControl, options_.node, options_.node_name, 0, 0};
  auto channel = std::make_unique<Channel>(
      Channel{id, connection.value(), &device, Handshake(Handshake::Role::kDialer, own, options_.cluster_key),
              Deadline::after_ms(options_.connect_ms), {}, {}, {}});
  by_id_[id] = channel.get();
  by_connection_[connection.value()] = std::move(channel);
  return id;
}

void ControlNetwork::send(ChannelId id, std::span<const std::byte> message) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;  // on_closed has told, or is about to
  Channel& channel = *found->second;
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
    const PeerHello own{Purpose::kControl, options_.node, options_.node_name, 0, 0};
    const ChannelId id = next_id_++;
    auto channel = std::make_unique<Channel>(
        Channel{id, completion.connection, &device, Handshake(Handshake::Role::kAcceptor, own, options_.cluster_key),
                Deadline::after_ms(options_.connect_ms), {}, {}, {}});
    by_id_[id] = channel.get();
    by_connection_[completion.connection] = std::move(channel);
    return;
  }
  const auto found = by_connection_.find(completion.connection);
  if (found == by_connection_.end()) return;
  Channel& channel = *found->second;
  if (completion.kind == Completion::Kind::kConnected) {
    for (const auto& message : channel.handshake.start()) (void)channel.connection->send(message, 0);
  } else if (completion.kind == Completion::Kind::kMessage) {
    on_bytes(channel, completion.message);
  } else if (completion.kind == Completion::Kind::kClosed) {
    const Status why = !channel.refused.empty()      ? Status(Code::kLink, channel.refused)
                       : completion.error.is_ok() ? Status(Code::kLink, "the other daemon closed the connection")
                                                  : completion.error;
    const ChannelId id = channel.id;
    by_id_.erase(id);
    by_connection_.erase(found);
    device.release(completion.connection);
    options_.on_closed(id, why);
  }
}

void ControlNetwork::on_bytes(Channel& channel, std::span<const std::byte> bytes) {
  if (!channel.handshake.done()) {
    auto answer = channel.handshake.on_message(bytes);
    if (!answer.is_ok()) return close(channel, answer.status().message());
    for (const auto& reply : answer.value()) (void)channel.connection->send(reply, 0);
    if (!channel.handshake.done()) return;
    if (channel.handshake.peer().purpose != Purpose::kControl) return close(channel, "not a control connection");
    for (const auto& message : std::exchange(channel.waiting, {})) send_now(channel, message);
    return;
  }
  if (channel.partial.size() + bytes.size() > kMaxControlBytes) return close(channel, "a message over the limit");
  channel.partial.insert(channel.partial.end(), bytes.begin() + 1, bytes.end());
  if (bytes[0] != kLast) return;
  const auto message = std::exchange(channel.partial, {});
  options_.on_message(channel.id, message);
}

void ControlNetwork::on_time() {
  for (auto& [id, channel] : by_id_) {
    if (!channel->handshake.done() && channel->until.expired() && channel->refused.empty()) {
      close(*channel, "no handshake in time");
    }
  }
}

std::optional<Deadline> ControlNetwork::next_time() const {
  std::optional<Deadline> next;
  if (!failed_dials_.empty()) next = Deadline::after_ms(0);
  for (const auto& [id, channel] : by_id_) {
    if (channel->handshake.done() || !channel->refused.empty()) continue;
    next = next ? Deadline::earlier(*next, channel->until) : channel->until;
  }
  return next;
}

std::vector<int> ControlNetwork::fds() const {
  std::vector<int> fds;
  for (const auto& device : devices_) fds.push_back(device->event_fd());
  return fds;
}

}  // namespace hdt::daemon
