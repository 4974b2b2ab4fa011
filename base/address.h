// address.h: addresses as configuration and status output write them, "HOST:PORT".
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

namespace hdt {

// Of a daemon's addresses, without the id of the daemon that may stand in front ("ID@...").
inline std::string without_id(const std::string& addresses) {
  return addresses.substr(addresses.find('@') + 1);
}

// Those of a list, "HOST:PORT,HOST:PORT".
inline std::vector<std::string> addresses_in(const std::string& list) {
  std::vector<std::string> addresses;
  for (size_t begin = 0; begin < list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    addresses.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return addresses;
}

// "[::1]" is the host "::1".
inline std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// Without the port. Of an address without one: all of it.
inline std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

// The port of "HOST:PORT"; 0 where there is none or it is no number from 1 to 65535.
inline uint16_t port_of(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return 0;
  uint16_t port = 0;
  const char* const end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
  return error == std::errc() && stop == end ? port : 0;
}

}  // namespace hdt
