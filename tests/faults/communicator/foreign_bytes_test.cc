// foreign_bytes_test.cc: bytes that no client or daemon would send, to every door of a daemon: it goes on
// serving.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/seqpacket.h"
#include "ipc/messages.h"
#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

constexpr int kRounds = 60;

// Ports on which a process listens, from the kernel's tables.
std::set<uint16_t> listening_ports(pid_t pid) {
  std::set<std::string> sockets;  // inodes
  for (const auto& file : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(file, gone).string();
    if (target.rfind("socket:[", 0) == 0) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::set<uint16_t> ports;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream text(line);
    const std::vector<std::string> fields(std::istream_iterator<std::string>(text), {});
    constexpr size_t kLocal = 1;
    constexpr size_t kState = 3;
    constexpr size_t kInode = 9;
    if (fields.size() > kInode && fields[kState] == "0A" && sockets.contains(fields[kInode])) {
      const std::string& local = fields[kLocal];
      ports.insert(static_cast<uint16_t>(std::stoul(local.substr(9), nullptr, 16)));
    }
  }
  return ports;
}

std::vector<std::byte> noise(std::mt19937& random, size_t most) {
  std::vector<std::byte> bytes(1 + random() % most);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(ForeignBytes, OnTheSocketOfSessions) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  World world(1);
  for (int round = 0; round < kRounds; ++round) {
    auto socket = connect_seqpacket(world.node(0).socket());
    ASSERT_TRUE(socket.is_ok()) << socket.status().message();
    if (round % 2 == 0) {
      (void)send_packet(socket.value().get(), ipc::encode(ipc::Hello{"test"}), {});
    }
    for (int packet = 0; packet < 8; ++packet) {
      auto bytes = noise(random, 2000);
      bytes[0] = static_cast<std::byte>(random() % 14);
      // Fails once the daemon has closed the session, which is its right.
      if (!send_packet(socket.value().get(), bytes, {}).is_ok()) break;
    }
  }
  world.expect_serving();
}

// Well-formed messages with hostile values.
TEST(ForeignBytes, ValuesOutOfRange) {
  World world(1);
  std::vector<ipc::JoinRequest> requests(6);
  for (auto& request : requests) {
    request.request = 1;
    request.ranks = 2;
    request.rendezvous = "127.0.1.1:1";
    request.group_class = "default";
    request.timeout_ms = 200;
  }
  requests[0].ranks = UINT32_MAX;
  requests[1].rank = 77;
  requests[2].rendezvous = "nowhere";
  requests[3].group_class = std::string(3000, 'x');
  requests[4].timeout_ms = INT64_MIN;
  requests[5].ranks = 0;
  for (const auto& request : requests) {
    auto socket = connect_seqpacket(world.node(0).socket());
    ASSERT_TRUE(socket.is_ok());
    ASSERT_TRUE(send_packet(socket.value().get(), ipc::encode(ipc::Hello{"test"}), {}).is_ok());
    ASSERT_TRUE(receive_packet(socket.value().get()).is_ok()) << "welcome";
    // A notice about a group that this session is not in.
    const auto notice = ipc::encode(ipc::Kind::kFail, ipc::GroupNotice{999, Code::kInternal, -5, "text"});
    ASSERT_TRUE(send_packet(socket.value().get(), notice, {}).is_ok());
    ASSERT_TRUE(send_packet(socket.value().get(), ipc::encode(request), {}).is_ok());
    const auto answer = receive_packet(socket.value().get());
    ASSERT_TRUE(answer.is_ok()) << answer.status().message();
    const auto joined = ipc::decode_joined(answer.value().bytes);
    EXPECT_TRUE(!joined.is_ok() || joined.value().code != Code::kSuccess);
  }
  world.expect_serving();
}

TEST(ForeignBytes, OnTheTcpPorts) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  World world(2);
  auto ranks = world.group({0, 1});
  const auto ports = listening_ports(world.node(0).process().pid());
  ASSERT_GE(ports.size(), 2U) << "control and rail";
  for (int round = 0; round < kRounds; ++round) {
    for (uint16_t port : ports) {
      const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = ::inet_addr("127.0.1.1");
      ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      const auto bytes = noise(random, 5000);
      (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }
  for (auto& rank : ranks) rank->start("allreduce 100000 4 0");
  for (auto& rank : ranks) EXPECT_EQ(rank->finish().result, HDT_SUCCESS) << "the group that was there before";
  world.expect_serving();
}

}  // namespace
}  // namespace hdt::testing
