#include "daemon/control/control_network.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/address.h"
#include "base/contained.h"
#include "base/log.h"
#include "daemon/links/own_host.h"
#include "daemon/protocol/channel_binding.h"
#include "ipc/segment.h"
#include "transports/net/subnet.h"
#include "transports/secure/tls.h"
#include "transports/tcp/options.h"

namespace hdt::daemon {

using transport::Completion;

namespace {

// The first byte of each transport message says whether more parts of the control message follow.
constexpr std::byte kMore{0}, kLast{1};
constexpr size_t kPart = transport::kMaxMessageBytes - 1;
// The token of every part of a message: only their number counts.
constexpr uint64_t kPartToken = 1;
// After so long without an answer the next address is tried beside the first one (as RFC 8305 does).
constexpr int64_t kNextAddressMs = 250;
// When on_closed is called again, if it threw.
constexpr int64_t kTellAgainMs = 10;
// The longest text about the failures of a dial. The list of addresses comes from other programs.
constexpr size_t kMaxFailures = 1'024;

bool is_v6(const std::string& address) { return address.starts_with('['); }
}  // namespace

ControlNetwork::ControlNetwork(ControlNetworkOptions options) : options_(std::move(options)) {}

std::string ControlNetwork::address_with_id() const {
  return id_text(options_.trust->node()) + "@" + address_;
}

Result<std::unique_ptr<transport::Device>> ControlNetwork::open(const transport::DeviceInfo& info,
                                                                uint16_t port, std::string* listening) {
  auto device = backend_->open(info);
  if (!device.is_ok()) return device.status();
  auto at = device.value()->listen(port);
  if (!at.is_ok()) return at.status();
  *listening = at.take();
  return device;
}

transport::Device* ControlNetwork::keep(std::unique_ptr<transport::Device> device) {
  devices_.push_back(std::move(device));
  ++device_changes_;
  return devices_.back().get();
}

Status ControlNetwork::start() {
  transport::tcp::Options with;
  if (!options_.trust->cluster_key().empty()) {
    // Control messages carry groups' secrets and keys of memory: they are encrypted wherever there is a key.
    auto security = transport::secure::make_tls_security(
        options_.trust->cluster_key(), transport::secure::Protection::kEncrypt, options_.node_name);
    if (!security.is_ok()) return security.status();
    with.security = security.take();
  }
  backend_ = transport::tcp::make_backend(with);
  backend_->limit_strangers(options_.strangers);
  for (const transport::DeviceInfo& nic : options_.devices) {
    std::string at;
    auto opened = open(nic, options_.port, &at);
    if (!opened.is_ok()) {
      if (address_.empty()) return opened.status();
      HDT_LOG_WARN("{} takes no control connections: {} {}", nic.name, opened.status().message(),
                   LogTag{.node = options_.node_name});
      continue;
    }
    keep(opened.take());
    ++nics_;
    if (address_.size() + 1 + at.size() >= ipc::kMaxAddressBytes) continue;
    address_ += (address_.empty() ? "" : ",") + at;
  }
  return Status::ok();
}

ControlNetwork::Channel& ControlNetwork::add_channel() {
  const ChannelId id = next_id_++;
  Channel& channel = channels_[id];
  channel.id = id;
  return channel;
}

ControlNetwork::Route& ControlNetwork::add_route(transport::Connection* connection, Channel& channel,
                                                 transport::Device& device, Handshake::Role role) {
  const PeerHello own{Purpose::kControl, {}, options_.node_name, 0, 0};
  Route& route =
      routes_
          .insert_or_assign(connection, Route{channel.id, &device, Handshake(role, own, options_.trust), "",
                                              Deadline::never(), ""})
          .first->second;
  ++channel.trying;
  return route;
}

ChannelId ControlNetwork::dial(const std::string& addresses, std::optional<bool> self) {
  Channel& channel = add_channel();
  const ChannelId id = channel.id;
  (void)contained(
      "a dial", [&] { dial_for(channel, addresses, self); }, [&](const std::string&) { give_up(id); });
  return id;
}

void ControlNetwork::dial_for(Channel& channel, const std::string& addresses, std::optional<bool> self) {
  const DaemonAddress address = DaemonAddress::parse(addresses);
  channel.expected = address.id;
  std::vector<std::string> all;
  for (const std::string& one : addresses_in(address.addresses)) {
    const std::string place = place_of(one);
    if (std::find(all.begin(), all.end(), place) == all.end()) all.push_back(place);
  }
  const bool all_own =
      std::all_of(all.begin(), all.end(), [this](const std::string& one) { return is_here(one); });
  // Only a daemon that is meant may answer; this one itself, if its id or addresses are given, or the
  // caller says so.
  channel.may_be_self = channel.expected == options_.trust->node() || self.value_or(all_own);
  channel.untried.assign(all.begin(), all.end());
  try_next(channel);
}

Result<transport::Device*> ControlNetwork::device_for(const std::string& address) {
  const std::string host = without_brackets(host_of(address));
  for (size_t i = 0; i < nics_; ++i) {
    const transport::DeviceInfo& nic = devices_[i]->info();
    // Every address that begins with 127 belongs to the loopback interface, whatever subnet the NIC says.
    const bool loopback = nic.address.starts_with("127.") && host.starts_with("127.");
    if (loopback || transport::in_subnet(nic, host)) return devices_[i].get();
  }
  const bool v6 = is_v6(address);
  if (const auto found = any_source_.find(v6); found != any_source_.end()) return found->second;
  transport::DeviceInfo info;
  info.address = v6 ? "::" : "0.0.0.0";
  info.up = true;
  auto device = backend_->open(info);
  if (!device.is_ok()) return device.status();
  return any_source_[v6] = keep(device.take());
}

void ControlNetwork::try_next(Channel& channel) {
  while (!channel.untried.empty()) {
    const std::string address = std::move(channel.untried.front());
    channel.untried.pop_front();
    if (options_.own_host_only && !is_loopback(host_of(address))) {
      channel.failures += (channel.failures.empty() ? "" : "; ") + address + " is of another host";
      channel.elsewhere = true;
      continue;
    }
    const auto device = device_for(address);
    auto connection = device.is_ok() ? device.value()->connect(address, options_.connect_ms)
                                     : Result<transport::Connection*>(device.status());
    if (!connection.is_ok()) {
      channel.failures += (channel.failures.empty() ? "" : "; ") + connection.status().message();
      channel.at_limit |= connection.status().code() == Code::kSystem;
      continue;
    }
    Route& route = add_route(connection.value(), channel, *device.value(), Handshake::Role::kDialer);
    route.address = address;
    route.until = Deadline::after_ms(options_.connect_ms);
    channel.next_try = channel.untried.empty() ? Deadline::never() : Deadline::after_ms(kNextAddressMs);
    return;
  }
  channel.next_try = Deadline::never();
  if (channel.trying > 0) return;
  std::string why = channel.failures.empty() ? "no address of a daemon is given" : channel.failures;
  why = why.substr(0, kMaxFailures);
  if (channel.elsewhere)
    why += "; node " + options_.node_name +
           " has no cluster key and reaches its own host only: " + how_to_have_peers();
  const Code code = channel.at_limit ? Code::kSystem : channel.elsewhere ? Code::kConfig : Code::kLink;
  end(channel.id, Status(code, why));
}

void ControlNetwork::end(ChannelId id, Status why) {
  auto node = channels_.extract(id);
  if (node.empty()) return;
  // Moved as a whole node of the map: no allocation, so a channel can end even without memory.
  node.mapped().ended = std::move(why);
  node.mapped().tell_at = Deadline::after_ms(0);
  ended_.insert(std::move(node));
}

bool ControlNetwork::tell_ended() {
  bool any = false;
  for (auto next = ended_.begin(); next != ended_.end();) {
    auto& [id, channel] = *next;
    if (!channel.tell_at.expired()) {
      ++next;
      continue;
    }
    // The callback may end other channels. They come behind this one or before it in the map, so the loop
    // does not rely on their numbers.
    channel.tell_at = Deadline::after_ms(kTellAgainMs);
    const bool told =
        contained("the end of a control connection",
                  [&, channel_id = id, &why = channel.ended] { options_.on_closed(channel_id, why); });
    next = told ? ended_.erase(next) : std::next(next);
    any |= told;
  }
  return any;
}

// A connection that closes leads to end() by its completion.
void ControlNetwork::give_up(ChannelId id) {
  const auto found = channels_.find(id);
  if (found == channels_.end()) return;
  if (found->second.connection != nullptr) return found->second.connection->close();
  end(id, Status(Code::kSystem, "no memory"));  // short: takes none
}

void ControlNetwork::send(ChannelId id, std::span<const std::byte> message) {
  const auto found = channels_.find(id);
  if (found == channels_.end()) return;  // on_closed has been called, or is about to be
  Channel& channel = found->second;
  if (channel.connection != nullptr) return send_now(channel, message);
  channel.waiting.emplace_back(message.begin(), message.end());
}

bool ControlNetwork::is_from(ChannelId id, const NodeInfo& node) const {
  const auto found = channels_.find(id);
  return found != channels_.end() && found->second.connection != nullptr && found->second.peer == node.id &&
         found->second.peer_name == node.name;
}

void ControlNetwork::send_now(Channel& channel, std::span<const std::byte> message) {
  // An empty message is one part as well. A part that cannot be sent means that the connection is ending.
  do {
    const size_t size = std::min(kPart, message.size());
    std::vector<std::byte> part;
    part.reserve(size + 1);
    part.push_back(size == message.size() ? kLast : kMore);
    part.insert(part.end(), message.begin(), message.begin() + static_cast<ptrdiff_t>(size));
    if (channel.connection->send(part, kPartToken).is_ok()) ++channel.unsent;
    message = message.subspan(size);
  } while (!message.empty());
}

void ControlNetwork::finish(ChannelId id) {
  const auto found = channels_.find(id);
  if (found == channels_.end()) return;
  Channel& channel = found->second;
  channel.finishing = true;
  if (channel.connection != nullptr && channel.unsent == 0) channel.connection->close();
  // Nothing waits to be sent and nobody has answered: the attempts under way find no channel and end.
  if (channel.connection == nullptr && channel.waiting.empty()) channels_.erase(found);
}

void ControlNetwork::refuse(Route& route, transport::Connection& connection, const std::string& why) {
  route.refused = why;
  const std::string closed = "control connection " + connection.remote_address() + " closed";
  if (route.address.empty()) {
    stranger_log_.say(closed, why, options_.node_name);
  } else {
    HDT_LOG_WARN("{}: {} {}", closed, why, LogTag{.node = options_.node_name});
  }
  connection.close();
}

void ControlNetwork::close(Channel& channel, const std::string& why) {
  channel.refused = why;
  HDT_LOG_WARN("control connection {} closed: {} {}", channel.connection->remote_address(), why,
               LogTag{.node = options_.node_name});
  channel.connection->close();
}

// Ended channels are reported before and after, so that one that ends in this round need not wait for the
// next.
bool ControlNetwork::poll() {
  bool any = tell_ended();
  for (size_t i = 0; i < devices_.size(); ++i) {  // on_message may open more
    completions_.clear();
    (void)contained("a device", [&] { any |= devices_[i]->poll(completions_); });
    const auto completions = std::exchange(completions_, {});
    for (const Completion& completion : completions) contain_completion(*devices_[i], completion);
  }
  any |= tell_ended();
  return any;
}

// An exception ends the connection whose completion was handled, and with it the channel, so that whoever
// waits for that learns of it. A connection that is closed already is released here.
void ControlNetwork::contain_completion(transport::Device& device, const Completion& completion) {
  transport::Connection* const connection = completion.connection;
  const auto route = routes_.find(connection);
  const ChannelId id = route == routes_.end() ? 0 : route->second.channel;
  const bool accepted = route != routes_.end() && route->second.address.empty();
  (void)contained(
      "a control connection", [&] { on_completion(device, completion); },
      [&](const std::string&) {
        if (completion.kind != Completion::Kind::kClosed) {
          connection->close();
          return;
        }
        if (routes_.erase(connection) == 1) device.release(connection);
        const auto channel = channels_.find(id);
        if (channel == channels_.end() ||
            (channel->second.connection != nullptr && channel->second.connection != connection))
          return;
        if (accepted && channel->second.connection == nullptr) {
          channels_.erase(channel);  // nobody here waits for it
        } else {
          end(id, Status(Code::kInternal, "no memory"));  // short: takes none
        }
      });
}

void ControlNetwork::on_completion(transport::Device& device, const Completion& completion) {
  transport::Connection* const connection = completion.connection;
  if (completion.kind == Completion::Kind::kAccepted) {
    const ChannelId id = add_channel().id;
    const auto begin = [&] {
      Route& route = add_route(connection, channels_.at(id), device, Handshake::Role::kAcceptor);
      route.until = Deadline::after_ms(options_.connect_ms);
    };
    if (contained("a control connection", begin)) return;
    channels_.erase(id);
    return connection->close();
  }
  const auto found = routes_.find(connection);
  if (found == routes_.end()) {  // there was no memory for its route
    if (completion.kind == Completion::Kind::kClosed) {
      device.release(connection);
    } else {
      connection->close();
    }
    return;
  }
  Route& route = found->second;
  if (completion.kind == Completion::Kind::kClosed) return on_connection_closed(completion);
  const auto entry = channels_.find(route.channel);
  // The channel has another connection, or has ended.
  if (entry == channels_.end() ||
      (entry->second.connection != nullptr && entry->second.connection != connection)) {
    return connection->close();
  }
  Channel& channel = entry->second;
  if (completion.kind == Completion::Kind::kConnected) {
    bind_to_channel(route.handshake, *connection);
    for (const auto& message : route.handshake.start()) (void)connection->send(message, 0);
  } else if (completion.kind == Completion::Kind::kSent) {
    if (completion.token == kPartToken) --channel.unsent;
    if (channel.finishing && channel.unsent == 0) connection->close();
  } else if (completion.kind == Completion::Kind::kMessage) {
    if (channel.connection == connection) {
      on_bytes(channel, completion.message);
    } else if (route.refused.empty()) {
      on_handshake(channel, route, *connection, completion.message);
    }
  }
}

std::string ControlNetwork::not_meant(const Channel& channel, const PeerHello& peer) const {
  if (channel.expected && peer.node != *channel.expected) {
    return peer.node == options_.trust->node()
               ? "it is an address of this node, not of the daemon that is meant"
               : "the daemon of node " + peer.name + " answers, which is not the one that is meant";
  }
  if (peer.node == options_.trust->node() && !channel.may_be_self)
    return "it is an address of this node itself";
  return "";
}

void ControlNetwork::on_handshake(Channel& channel, Route& route, transport::Connection& connection,
                                  std::span<const std::byte> bytes) {
  if (options_.trust->cluster_key().empty() && !route.handshake.introduced()) {
    if (const auto foreign = foreign_peer(connection); !foreign.empty())
      return refuse(route, connection, foreign);
  }
  if (!route.handshake.introduced()) bind_to_channel(route.handshake, connection);
  auto answer = route.handshake.on_message(bytes);
  if (!answer.is_ok()) return refuse(route, connection, answer.status().message());
  const PeerHello& peer = route.handshake.peer();
  // Checked before this end proves anything: otherwise the other end would accept a channel that was not
  // meant for it.
  if (!route.address.empty() && (route.handshake.done() || peer.node != NodeId{})) {
    const std::string wrong = not_meant(channel, peer);
    if (!wrong.empty()) return refuse(route, connection, wrong);
  }
  for (const auto& reply : answer.value()) (void)connection.send(reply, 0);
  if (!route.handshake.done()) return;
  if (peer.purpose != Purpose::kControl) return refuse(route, connection, "not a control connection");
  if (const Status admitted = connection.admit({peer.node.bytes}); !admitted.is_ok())
    return refuse(route, connection, admitted.message());
  channel.connection = &connection;
  channel.peer = peer.node;
  channel.peer_name = peer.name;
  channel.untried.clear();
  channel.next_try = Deadline::never();
  --channel.trying;
  for (const auto& message : std::exchange(channel.waiting, {})) send_now(channel, message);
  if (channel.finishing && channel.unsent == 0) connection.close();
}

void ControlNetwork::on_connection_closed(const Completion& completion) {
  // One of three has ended: an attempt of a channel that is in use already, an attempt that has failed, or
  // the channel itself.
  const auto node = routes_.extract(completion.connection);
  const Route& route = node.mapped();
  route.device->release(completion.connection);
  const auto found = channels_.find(route.channel);
  if (found == channels_.end()) return;
  Channel& channel = found->second;
  if (channel.connection != completion.connection) {
    --channel.trying;
    if (channel.connection != nullptr) return;  // another one completed the handshake before
    const std::string why = !route.refused.empty() ? route.refused
                            : completion.error.is_ok()
                                ? "the other side closed the connection during the handshake"
                                : completion.error.message();
    channel.failures += (channel.failures.empty() ? "" : "; ");
    channel.at_limit |= completion.error.code() == Code::kSystem;
    // The texts of connect() begin with the address.
    channel.failures += why.find(route.address) != std::string::npos ? why : route.address + ": " + why;
    if (route.address.empty()) {  // accepted: nobody here waits for it
      if (completion.error.code() == Code::kSystem) {
        stranger_log_.say("a control connection closed", completion.error.message(), options_.node_name);
      }
      channels_.erase(found);
      return;
    }
    return try_next(channel);
  }
  const Status why = !channel.refused.empty() ? Status(Code::kLink, channel.refused)
                     : completion.error.is_ok()
                         ? Status(Code::kLink, "the other daemon closed the connection")
                         : completion.error;
  if (channel.finishing) {
    channels_.erase(found);
  } else {
    end(route.channel, why);
  }
}

void ControlNetwork::on_bytes(Channel& channel, std::span<const std::byte> bytes) {
  if (channel.partial.size() + bytes.size() > kMaxControlBytes)
    return close(channel, "a message over the limit");
  channel.partial.insert(channel.partial.end(), bytes.begin() + 1, bytes.end());
  if (bytes[0] != kLast) return;
  const auto message = std::exchange(channel.partial, {});
  options_.on_message(channel.id, message);
}

void ControlNetwork::on_time() {
  for (auto& [connection, route] : routes_) {
    if (!route.handshake.done() && route.until.expired() && route.refused.empty())
      refuse(route, *connection, fmt::format("no handshake within {} ms", options_.connect_ms));
  }
  std::vector<ChannelId> due;  // trying may end a channel
  for (auto& [id, channel] : channels_) {
    if (channel.next_try.expired()) due.push_back(id);
  }
  for (const ChannelId id : due) try_next(channels_.at(id));
  const auto expired = [](const auto& entry) { return entry.second.close_at.expired(); };
  if (std::any_of(places_.begin(), places_.end(), expired)) close_places();
}

std::optional<Deadline> ControlNetwork::next_time() const {
  Deadline next = Deadline::never();
  for (const auto& [id, channel] : ended_) next = Deadline::earlier(next, channel.tell_at);
  for (const auto& [id, channel] : channels_) next = Deadline::earlier(next, channel.next_try);
  for (const auto& [connection, route] : routes_) {
    if (!route.handshake.done() && route.refused.empty()) next = Deadline::earlier(next, route.until);
  }
  for (const auto& [address, place] : places_) {
    // A place whose deadline has passed is still here because of a connection. It closes after that one.
    if (!place.close_at.expired()) next = Deadline::earlier(next, place.close_at);
  }
  return next.is_never() ? std::nullopt : std::optional(next);
}

bool ControlNetwork::all_sent() const {
  return std::all_of(channels_.begin(), channels_.end(),
                     [](const auto& entry) { return entry.second.unsent == 0; });
}

NodeId ControlNetwork::peer_of(ChannelId channel) const {
  const auto found = channels_.find(channel);
  if (found == channels_.end() || found->second.connection == nullptr) return {};
  const auto route = routes_.find(found->second.connection);
  return route == routes_.end() ? NodeId{} : route->second.handshake.peer().node;
}

std::vector<int> ControlNetwork::fds() const {
  std::vector<int> fds;
  for (const auto& device : devices_) fds.push_back(device->event_fd());
  return fds;
}

}  // namespace hdt::daemon
