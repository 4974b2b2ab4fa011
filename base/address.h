// address.h: addresses as configuration and status output write them, "HOST:PORT".
#pragma once

#include <string>

namespace hdt {

// Of a daemon's addresses, without the id of the daemon that may stand in front ("ID@...").
inline std::string without_id(const std::string& addresses) {
  return addresses.substr(addresses.find('@') + 1);
}

// Without the port. Of an address without one: all of it.
inline std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace hdt
