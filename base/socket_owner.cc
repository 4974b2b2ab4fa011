// socket_owner.cc: from the kernel's tables of TCP sockets, which are there without a module or a capability.
#include "base/socket_owner.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/address.h"

namespace hdt {

namespace {

// An end as /proc/net/tcp and tcp6 write it: the address as words of 32 bits, in the byte order of the host.
// "": no address.
std::string table_form(const std::string& address, bool v6) {
  std::string host = host_of(address);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::array<uint32_t, 4> words{};
  size_t count = 1;
  if (v6) {
    // A socket of IPv6 that speaks IPv4 has a mapped address.
    if (host.find(':') == std::string::npos) host = "::ffff:" + host;
    if (::inet_pton(AF_INET6, host.c_str(), words.data()) != 1) return "";
    count = words.size();
  } else if (::inet_pton(AF_INET, host.c_str(), words.data()) != 1) {
    return "";
  }
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:08X}", words[i]);
  return text + fmt::format(":{:04X}", port_of(address));
}

}  // namespace

std::optional<uid_t> owner_of_other_end(const std::string& own, const std::string& other) {
  for (const bool v6 : {false, true}) {
    const std::string local = table_form(other, v6), remote = table_form(own, v6);
    if (local.empty() || remote.empty()) continue;
    std::ifstream table(v6 ? "/proc/net/tcp6" : "/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
      if (line.find(local + " " + remote) == std::string::npos) continue;
      // Number, local, remote, state, queues, timer, retransmissions, uid, timeout, inode.
      std::istringstream fields(line);
      std::string skipped;
      uid_t uid = 0;
      uint64_t timeout = 0, inode = 0;
      for (int i = 0; i < 7; ++i) fields >> skipped;
      // One that no process has open any more counts as root's.
      if (fields >> uid >> timeout >> inode && inode != 0) return uid;
    }
  }
  return std::nullopt;
}

}  // namespace hdt
