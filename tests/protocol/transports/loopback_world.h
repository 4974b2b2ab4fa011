// loopback_world.h: the World of a backend whose connections are, or begin with, TCP sockets: loopback
// addresses.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

inline sockaddr_in loopback(const char* host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, host, &address.sin_addr), 1);
  return address;
}

class LoopbackWorld : public World {
 public:
  explicit LoopbackWorld(Result<std::unique_ptr<Backend>> backend) {
    EXPECT_TRUE(backend.is_ok()) << backend.status().to_string();
    if (backend.is_ok()) backend_ = backend.take();
  }
  ~LoopbackWorld() override {
    for (const int fd : fds_) ::close(fd);
  }
  Backend& backend() override { return *backend_; }
  DeviceInfo device(int index) override {
    DeviceInfo info;
    info.name = "lo";
    info.address = "127.0.1." + std::to_string(index + 1);
    return info;
  }
  // Bound, so that nobody else gets the port, but not listening.
  std::string refusing_address() override {
    const int fd = bound("127.0.1.9");
    return "127.0.1.9:" + std::to_string(port_of(fd));
  }
  // It takes connections, and never says hello.
  std::string silent_address() override {
    const int fd = bound("127.0.1.8");
    EXPECT_EQ(::listen(fd, 1), 0);
    return "127.0.1.8:" + std::to_string(port_of(fd));
  }

 protected:
  // A socket of the world; closed with it.
  int hold(int fd) {
    fds_.push_back(fd);
    return fd;
  }
  int bound(const char* host) {
    const int fd = hold(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = loopback(host, 0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static uint16_t port_of(int fd) {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    return ntohs(address.sin_port);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<int> fds_;
};

}  // namespace hdt::transport
