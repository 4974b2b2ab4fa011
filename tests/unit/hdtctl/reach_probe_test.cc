// reach_probe_test.cc: connections that are made and that are refused, on loopback addresses.
#include "tools/hdtctl/reach_probe.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/unique_fd.h"

namespace hdt::ctl {
namespace {

constexpr int kTimeoutMs = 20'000;

TEST(ReachProbe, TellsWhichPairsConnect) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = ::htonl(0x7f000102);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::string address = "127.0.1.2:" + std::to_string(::ntohs(at.sin_port));
  // Bound and not listening: it refuses, and nobody else can take the port.
  std::vector<Reach> pairs(3);
  for (Reach& pair : pairs) {
    pair.from_address = "127.0.1.1";
    pair.to_address = address;
  }
  pairs[2].to_address = "eth0";
  try_all(pairs, kTimeoutMs);
  EXPECT_EQ(pairs[0].error, "Connection refused");
  EXPECT_EQ(pairs[2].error, "no numeric address");
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  pairs[0].error.clear();
  pairs[1].error.clear();
  pairs[1].from_address = "192.0.2.1";  // not ours
  try_all(pairs, kTimeoutMs);
  EXPECT_EQ(pairs[0].error, "");
  EXPECT_GT(pairs[0].path_mtu, 0U);
  EXPECT_NE(pairs[1].error, "");
}

}  // namespace
}  // namespace hdt::ctl
