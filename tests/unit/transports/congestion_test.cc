// congestion_test.cc: which peers are near, and what their connections use instead of BBR.
#include "transports/net/congestion.h"

#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "transports/net/socket.h"

namespace hdt::transport::tcp {
namespace {

DeviceInfo nic(const std::string& address, uint32_t prefix_bits) {
  DeviceInfo info;
  info.address = address;
  info.prefix_bits = prefix_bits;
  return info;
}

SocketAddress peer(const std::string& host) { return SocketAddress::from_host(host, 4000).take(); }

std::string congestion_control_of(const Fd& socket) {
  char name[17] = {};
  socklen_t bytes = sizeof name - 1;
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
  return name;
}

TEST(NearPeers, AreThoseOfTheSubnetAndOfTheNode) {
  EXPECT_TRUE(is_near(nic("10.1.2.3", 24), peer("10.1.2.200")));
  EXPECT_FALSE(is_near(nic("10.1.2.3", 24), peer("10.1.3.3")));
  EXPECT_TRUE(is_near(nic("10.1.2.3", 22), peer("10.1.3.3")));
  EXPECT_TRUE(is_near(nic("fd00::1", 64), peer("fd00::2:1")));
  EXPECT_FALSE(is_near(nic("fd00::1", 64), peer("fd00:1::1")));
  EXPECT_FALSE(is_near(nic("10.1.2.3", 24), peer("fd00::1")));
  EXPECT_TRUE(is_near(nic("10.1.2.3", 24), peer("127.0.1.2")));
}

TEST(NearPeers, NeedASubnetThatIsKnown) { EXPECT_FALSE(is_near(nic("10.1.2.3", 0), peer("10.1.2.4"))); }

TEST(CongestionControl, IsTheSystemsUnlessThatIsBbrAndThePeerNear) {
  const Fd socket = open_connector(SocketAddress::from_host("127.0.0.1", 0).take()).take();
  const std::string usual = congestion_control_of(socket);
  const std::string near = usual.starts_with("bbr") ? "reno" : usual;
  choose_congestion_control(socket.get(), true);
  EXPECT_EQ(congestion_control_of(socket), near) << "the system's default is " << usual;
  choose_congestion_control(socket.get(), false);
  EXPECT_EQ(congestion_control_of(socket), usual);
}

}  // namespace
}  // namespace hdt::transport::tcp
