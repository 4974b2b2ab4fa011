#include "tools/hdtctl/reach_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace hdt::ctl {

namespace {

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

std::optional<Address> parse(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.empty() ? nullptr : port.c_str(), &hints, &found) != 0) return {};
  Address address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

// "[::1]:5" and "10.0.0.1:5"
std::optional<Address> parse_with_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return parse(host, text.substr(colon + 1));
}

UniqueFd start(Reach& pair) {
  const auto from = parse(pair.from_address, "");
  const auto to = parse_with_port(pair.to_address);
  if (!from || !to) {
    pair.error = "no numeric address";
    return {};
  }
  UniqueFd fd(::socket(to->bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto bound = [&] {
    return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from->bytes), from->size) == 0;
  };
  const auto connects = [&] {
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->bytes), to->size) == 0 ||
           errno == EINPROGRESS;
  };
  if (fd.valid() && bound() && connects()) return fd;
  pair.error = std::strerror(errno);
  return {};
}

void finish(Reach& pair, int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    pair.error = std::strerror(error);
    return;
  }
  int mtu = 0;
  size = sizeof mtu;
  if (::getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &size) == 0 && mtu > 0)
    pair.path_mtu = static_cast<uint32_t>(mtu);
}

}  // namespace

void try_all(std::vector<Reach>& pairs, int timeout_ms) {
  std::vector<UniqueFd> fds;
  for (Reach& pair : pairs) fds.push_back(start(pair));
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<size_t> which;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (!fds[i].valid()) continue;
      waiting.push_back({fds[i].get(), POLLOUT, 0});
      which.push_back(i);
    }
    if (waiting.empty()) return;
    const bool over = deadline.expired();
    ::poll(waiting.data(), waiting.size(), over ? 0 : deadline.poll_timeout_ms());
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) {
        finish(pairs[which[i]], waiting[i].fd);
      } else if (over) {
        pairs[which[i]].error = "no answer within " + std::to_string(timeout_ms) + " ms";
      } else {
        continue;
      }
      fds[which[i]].reset();
    }
  }
}

}  // namespace hdt::ctl
