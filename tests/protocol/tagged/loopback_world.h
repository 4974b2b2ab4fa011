// loopback_world.h: the World of a backend whose connections begin with a control socket: loopback addresses.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

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

 private:
  int bound(const char* host) {
    fds_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, host, &address.sin_addr);
    EXPECT_EQ(::bind(fds_.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fds_.back();
  }
  static uint16_t port_of(int fd) {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    return ntohs(address.sin_port);
  }

  std::unique_ptr<Backend> backend_;
  std::vector<int> fds_;
};

}  // namespace hdt::transport
