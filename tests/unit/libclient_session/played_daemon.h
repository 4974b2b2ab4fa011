// played_daemon.h: a daemon that a test plays for a session of this process.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <span>
#include <string>

#include "base/seqpacket.h"
#include "base/shared_memory.h"
#include "ipc/messages.h"
#include "ipc/wake_page.h"

namespace hdt::client {

// Longer than anything takes that these tests wait for.
inline constexpr auto kTime = std::chrono::seconds(30);

// Listens as a daemon does, and greets one process after the other.
class PlayedDaemon {
 public:
  PlayedDaemon() : path_("/tmp/hdt-session-test-" + std::to_string(::getpid()) + ".sock") { listen(); }
  ~PlayedDaemon() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  // Takes the place of a daemon that has ended.
  void listen() {
    ::unlink(path_.c_str());
    auto socket = listen_seqpacket(path_);
    ASSERT_TRUE(socket.is_ok()) << socket.status().message();
    listener_ = socket.take();
  }
  // Waits for a process to connect.
  void greet(int64_t restart_ms) {
    pollfd ready{listener_.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 30'000), 1);
    process_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_GE(process_.get(), 0);
    ASSERT_TRUE(receive_packet(process_.get()).is_ok());
    auto page = SharedMemory::create("page", sizeof(ipc::WakePage));
    ASSERT_TRUE(page.is_ok());
    const UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const std::array<int, 2> fds = {page.value().fd(), bell.get()};
    ASSERT_TRUE(send(ipc::encode(ipc::Welcome{"played", "node", 0, 1, restart_ms}), fds));
  }
  // The next message of the process, which must be of this kind.
  Packet hear(ipc::Kind kind) {
    pollfd ready{process_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 30'000), 1) << "the process sends nothing";
    if (ready.revents == 0) return {};
    auto packet = receive_packet(process_.get());
    EXPECT_TRUE(packet.is_ok()) << packet.status().message();
    if (!packet.is_ok()) return {};
    EXPECT_EQ(ipc::kind_of(packet.value().bytes).value(), kind);
    return packet.take();
  }
  bool send(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    return send_packet(process_.get(), bytes, fds).is_ok();
  }
  // Ends without a message.
  void end() {
    listener_.reset();
    process_.reset();
  }

 private:
  std::string path_;
  UniqueFd listener_, process_;
};

}  // namespace hdt::client
