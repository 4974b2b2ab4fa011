// control_places.cc: where a ControlNetwork listens besides its own addresses: the meeting places of
// groups. Several groups may meet at one place, so places are counted. A place's sockets stay open for
// kLateMs after its last group, for ranks that come late.
#include <algorithm>

#include "base/address.h"
#include "base/contained.h"
#include "daemon/control/control_network.h"
#include "daemon/links/own_host.h"

namespace hdt::daemon {

namespace {

// Whether the list has the address, compared as text.
bool has(const std::vector<std::string>& list, const std::string& address) {
  return std::find(list.begin(), list.end(), address) != list.end();
}

}  // namespace

// host_place() and dial_for() both go through this, so that a rank meets the socket that was opened for
// it.
std::string ControlNetwork::place_of(const std::string& address) const {
  return options_.own_host_only ? within_host(address) : address;
}

// host_place() and leave_place() compute the same list from the same arguments, so that each place's
// count returns to 0. NICs and own_host_only do not change after start().
Result<std::vector<std::string>> ControlNetwork::places_of(const std::string& addresses, bool on_nics) const {
  std::vector<std::string> wanted;
  for (const std::string& address : addresses_in(addresses)) {
    if (port_of(address) == 0) {
      return Status(Code::kInvalidArgument,
                    "meeting place '" + address + "' is not of the form address:port with a port 1..65535");
    }
    const std::string place = place_of(address);
    if (!has(wanted, place)) wanted.push_back(place);
  }
  if (wanted.empty()) return Status(Code::kInvalidArgument, "no meeting place is given");
  const std::string port = std::to_string(port_of(wanted.front()));
  for (size_t i = 0; on_nics && i < nics_; ++i) {
    const std::string& host = devices_[i]->info().address;
    const std::string address = (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
    if (!has(wanted, address)) wanted.push_back(address);
  }
  return wanted;
}

// Each wanted address is opened or skipped, until one of them is a conflict. Then everything is undone,
// so that a failed call needs no leave_place().
Status ControlNetwork::host_place(const std::string& addresses, bool on_nics) {
  const auto wanted = places_of(addresses, on_nics);
  if (!wanted.is_ok()) return wanted.status();
  const auto own = addresses_in(address_);
  std::vector<std::string> hosted;
  std::string elsewhere;
  bool any = false;
  for (const std::string& address : wanted.value()) {
    // 1. It listens there anyway.
    if (has(own, address)) {
      any = true;
      continue;
    }
    // 2. It may not listen there.
    if (options_.own_host_only && !is_loopback(host_of(address))) {
      elsewhere += (elsewhere.empty() ? "" : "; ") + address + " is not here";
      continue;
    }
    // 3. A new place, or one of another group, perhaps one that is about to close.
    const auto [entry, is_new] = places_.try_emplace(address);
    Place& place = entry->second;
    if (is_new) {
      // A place's address need not belong to one of the NICs; the kernel decides whether it can be bound.
      transport::DeviceInfo info = options_.devices.front();
      info.address = without_brackets(host_of(address));
      info.prefix_bits = 0;
      std::string at;
      // An address that cannot be bound belongs to another host: it is skipped. If its port is taken, the
      // call fails, and what it had opened is closed again.
      auto device = backend_->open(info);
      const Status listening =
          device.is_ok() ? device.value()->listen(port_of(address)).status() : device.status();
      // The entry was made before the socket, so that there is a place for the device once it
      // listens.
      if (!listening.is_ok()) places_.erase(entry);
      if (!device.is_ok()) {
        elsewhere += (elsewhere.empty() ? "" : "; ") + device.status().message();
        continue;
      }
      if (!listening.is_ok()) {
        for (const std::string& one : hosted) --places_.at(one).users;
        close_places();
        return {Code::kSystem,
                listening.message() + ": another program, or another job's daemon, listens there"};
      }
      place.device = keep(device.take());
    }
    ++place.users;
    place.close_at = Deadline::never();
    hosted.push_back(address);
    any = true;
  }
  if (!any) {
    return {Code::kConfig,
            "rank 0 cannot listen at " + addresses + ", which is no address of its host: " + elsewhere};
  }
  return Status::ok();
}

// Addresses that host_place() skipped are not in places_.
void ControlNetwork::leave_place(const std::string& addresses, bool on_nics) {
  const auto wanted = places_of(addresses, on_nics);
  if (!wanted.is_ok()) return;
  for (const std::string& address : wanted.value()) {
    const auto found = places_.find(address);
    if (found == places_.end() || found->second.users == 0) continue;
    // on_time() closes it then.
    if (--found->second.users == 0) found->second.close_at = Deadline::after_ms(kLateMs);
  }
}

// Compared as text, so an address that is written in two ways counts as two.
bool ControlNetwork::is_here(const std::string& address) const {
  return has(addresses_in(address_), address) || places_.contains(address);
}

// A place that is about to close counts: it still accepts connections.
bool ControlNetwork::listens_at(const std::string& addresses) const {
  const auto all = addresses_in(without_id(addresses));
  return std::any_of(all.begin(), all.end(),
                     [this](const std::string& one) { return is_here(place_of(one)); });
}

// A device closes together with its connections, so a place with a route stays until the route has ended.
void ControlNetwork::close_places() {
  std::erase_if(places_, [&](const auto& entry) {
    const Place& place = entry.second;
    if (place.users != 0 || (!place.close_at.expired() && !place.close_at.is_never())) return false;
    const bool used = std::any_of(routes_.begin(), routes_.end(),
                                  [&](const auto& route) { return route.second.device == place.device; });
    if (used) return false;
    std::erase_if(devices_, [&](const auto& device) { return device.get() == place.device; });
    ++device_changes_;
    return true;
  });
}

// In this file, as the tests' lying daemon has its own send() of bytes in the place of the other one.
void ControlNetwork::send(ChannelId channel, const ControlMessage& message) {
  (void)contained(
      "a control message", [&] { send(channel, encode(message)); },
      [&](const std::string&) { give_up(channel); });
}

}  // namespace hdt::daemon
