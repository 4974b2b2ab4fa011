// socket_owner_test.cc: whose the other end of a connection is, by both ways, for each kind of address.
#include "base/socket_owner.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace hdt {
namespace {

struct Pair {
  UniqueFd client, server;
  std::string client_end, server_end;
};

std::string text_of(const std::string& host, uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

uint16_t port_of(int fd) {
  sockaddr_in6 address{};  // the port stands at the same place in both families
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  return ntohs(address.sin6_port);
}

// `host`: as the socket's family writes it; `shown`: as HDT does.
Pair connect_over(int family, const std::string& host, const std::string& shown) {
  Pair pair;
  const UniqueFd listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  v6.sin6_family = AF_INET6;
  v4.sin_family = AF_INET;
  auto* const address =
      family == AF_INET ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  socklen_t bytes = family == AF_INET ? sizeof(v4) : sizeof(v6);
  void* const where =
      family == AF_INET ? static_cast<void*>(&v4.sin_addr) : static_cast<void*>(&v6.sin6_addr);
  EXPECT_EQ(::inet_pton(family, host.c_str(), where), 1);
  EXPECT_EQ(::bind(listener.get(), address, bytes), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), address, &bytes), 0);
  pair.client = UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(pair.client.get(), address, bytes), 0);
  pair.server = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_GE(pair.server.get(), 0);
  pair.client_end = text_of(shown, port_of(pair.client.get()));
  pair.server_end = text_of(shown, port_of(pair.server.get()));
  return pair;
}

class Owners : public testing::TestWithParam<std::tuple<int, const char*, const char*>> {};

TEST_P(Owners, BothWaysNameTheUserUntilTheSocketIsClosed) {
  const auto& [family, host, shown] = GetParam();
  Pair pair = connect_over(family, host, shown);
  for (const bool server : {false, true}) {
    const std::string& own = server ? pair.server_end : pair.client_end;
    const std::string& other = server ? pair.client_end : pair.server_end;
    EXPECT_EQ(owner_by_tables(own, other), ::getuid());
    const SocketOwner asked = owner_by_question(own, other);
    if (asked.known) {
      EXPECT_EQ(asked.uid, ::getuid());
    }
    EXPECT_EQ(owner_of_other_end(own, other), ::getuid());
  }
  pair.client.reset();  // the server's end stays open, so that the kernel keeps what is left of the client's
  EXPECT_EQ(owner_by_tables(pair.server_end, pair.client_end), std::nullopt);
  EXPECT_EQ(owner_by_question(pair.server_end, pair.client_end).uid, std::nullopt);
  EXPECT_EQ(owner_of_other_end(pair.server_end, pair.client_end), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Addresses, Owners,
                         testing::Values(std::tuple(AF_INET, "127.0.0.1", "127.0.0.1"),
                                         std::tuple(AF_INET6, "::1", "::1"),
                                         std::tuple(AF_INET6, "::ffff:127.0.0.1", "127.0.0.1")));

TEST(Owners, NobodyHasWhatIsNoAddress) {
  EXPECT_EQ(owner_of_other_end("nonsense", "127.0.0.1:1"), std::nullopt);
  EXPECT_EQ(owner_of_other_end("127.0.0.1:1", "127.0.0.1:1"), std::nullopt);
}

}  // namespace
}  // namespace hdt
