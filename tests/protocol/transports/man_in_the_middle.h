// man_in_the_middle.h: somebody on the way between two TCP ends, who passes on what they say to each other,
// keeps a copy, and changes it where a test says so. It has a thread of its own; a test is sure that it has
// seen what an end has got.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/protocol/transports/loopback_world.h"

namespace hdt::transport {

class ManInTheMiddle {
 public:
  using Bytes = std::vector<std::byte>;
  // May change what the end that dialled sends, as it came from one read.
  using Change = std::function<void(Bytes&)>;

  // `target`: "127.0.1.2:4000".
  explicit ManInTheMiddle(const std::string& target) : target_(target) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in any = loopback("127.0.1.7", 0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~ManInTheMiddle() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }

  std::string address() const {
    sockaddr_in own{};
    socklen_t bytes = sizeof own;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &bytes), 0);
    return "127.0.1.7:" + std::to_string(ntohs(own.sin_port));
  }
  // From now on; what was seen before is forgotten.
  void change(Change change) {
    const std::lock_guard lock(mutex_);
    change_ = std::move(change);
    seen_.clear();
  }
  Bytes seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  // Closes both sides.
  void cut() { cut_ = true; }

 private:
  static constexpr int kLookMs = 20;

  void run() {
    while (!stop_) {
      pollfd waits[] = {{listener_, POLLIN, 0}};
      if (::poll(waits, 1, kLookMs) == 1) serve(::accept(listener_, nullptr, nullptr));
    }
  }

  void serve(int dialer) {
    const int acceptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const size_t colon = target_.rfind(':');
    const sockaddr_in there = loopback(target_.substr(0, colon).c_str(),
                                       static_cast<uint16_t>(std::stoi(target_.substr(colon + 1))));
    bool open = ::connect(acceptor, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0;
    while (open && !stop_ && !cut_) {
      std::array<pollfd, 2> waits = {pollfd{dialer, POLLIN, 0}, pollfd{acceptor, POLLIN, 0}};
      ::poll(waits.data(), waits.size(), kLookMs);
      if (waits[0].revents != 0) open = pass(dialer, acceptor, true);
      if (open && waits[1].revents != 0) open = pass(acceptor, dialer, false);
    }
    ::close(dialer);
    ::close(acceptor);
  }

  bool pass(int from, int to, bool of_dialer) {
    Bytes bytes(64 << 10);
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes.resize(static_cast<size_t>(got));
    if (of_dialer) {
      const std::lock_guard lock(mutex_);
      seen_.insert(seen_.end(), bytes.begin(), bytes.end());
      if (change_) change_(bytes);
    }
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t sent = ::send(to, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += static_cast<size_t>(sent);
    }
    return true;
  }

  const std::string target_;
  int listener_ = -1;
  std::mutex mutex_;
  Change change_;
  Bytes seen_;
  std::atomic<bool> stop_ = false, cut_ = false;
  std::thread thread_;
};

}  // namespace hdt::transport
