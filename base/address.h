// address.h: addresses as configuration and status output write them, "HOST:PORT", and lists of them. An
// IPv6 host stands in square brackets ("[::1]:18520"). All functions are pure and may be called from any
// thread. None of them checks that a host is valid; that is left to the resolver or to inet_pton.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/whole_number.h"

namespace hdt {

// A daemon's addresses without the id that may stand in front: "ID@HOST:PORT,HOST:PORT" becomes
// "HOST:PORT,HOST:PORT". A text without '@' is returned as it is, because find() then gives npos and
// npos + 1 is 0.
inline std::string without_id(const std::string& addresses) {
  return addresses.substr(addresses.find('@') + 1);
}

// Splits a list "HOST:PORT,HOST:PORT" at its commas. An empty list gives no entry. A comma at the end
// adds no entry, but two commas in a row give an empty one.
inline std::vector<std::string> addresses_in(const std::string& list) {
  std::vector<std::string> addresses;
  for (size_t begin = 0; begin < list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    addresses.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return addresses;
}

// Removes the brackets of an IPv6 host: "[::1]" becomes "::1". Any other text is returned as it is.
inline std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// The host of "HOST:PORT", with its brackets. An address without a colon is returned whole. A bare IPv6
// address without brackets would lose its last group, so callers pass bracketed ones.
inline std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

// The port of "HOST:PORT". Returns 0 if there is no port, or if it is not a number from 1 to 65535.
inline uint16_t port_of(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return 0;
  return whole_number<uint16_t>(std::string_view(address).substr(colon + 1)).value_or(0);
}

}  // namespace hdt
