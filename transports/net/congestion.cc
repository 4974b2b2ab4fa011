// congestion.cc: reads the system's default from a fresh socket, and sets Reno or that default (see
// congestion.h).
#include "transports/net/congestion.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "transports/net/socket.h"
#include "transports/net/subnet.h"

namespace hdt::transport::tcp {

namespace {

constexpr size_t kMostNameBytes = 16;  // TCP_CA_NAME_MAX of the kernel

// Asked anew for each connection, as an administrator may change it while the daemon runs. "": not known.
std::string system_default() {
  const Fd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  std::array<char, kMostNameBytes + 1> name{};
  socklen_t bytes = kMostNameBytes;
  if (!fresh.valid() || ::getsockopt(fresh.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0)
    return "";
  return name.data();
}

}  // namespace

bool is_near(const DeviceInfo& nic, const SocketAddress& peer) {
  return peer.is_loopback() || (nic.prefix_bits != 0 && in_subnet(nic, peer.host()));
}

void choose_congestion_control(int fd, bool near) {
  const std::string usual = system_default();
  if (!usual.starts_with("bbr")) return;
  // A peer that is not near gets the default back: the accepted socket has inherited the listener's Reno.
  const std::string chosen = near ? "reno" : usual;
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, chosen.data(), static_cast<socklen_t>(chosen.size()));
}

}  // namespace hdt::transport::tcp
