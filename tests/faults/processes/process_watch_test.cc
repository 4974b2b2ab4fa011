#include "base/process_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/seqpacket.h"
#include "tests/faults/processes/children.h"

namespace hdt {
namespace {

constexpr int kLimitMs = 20'000;

bool ends_within(int pidfd, int ms) {
  pollfd look{pidfd, POLLIN, 0};
  return ::poll(&look, 1, ms) == 1;
}

// A listener, and a child that connects to it and then does `then`.
class Peer {
 public:
  explicit Peer(const std::function<void(int socket)>& then)
      : path_("/tmp/hdt-watch-" + std::to_string(::getpid()) + ".sock") {
    auto made = listen_seqpacket(path_);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    const UniqueFd listener = made.take();
    child_ = testing::child([&] {
      const auto socket = connect_seqpacket(path_);
      if (socket.is_ok()) then(socket.value().get());
    });
    pollfd ready{listener.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, kLimitMs), 1);
    accepted_ = UniqueFd(::accept(listener.get(), nullptr, nullptr));
    ::unlink(path_.c_str());
  }
  ~Peer() { end(); }
  void end() {
    if (child_ > 0) testing::end(child_);
    child_ = -1;
  }
  pid_t pid() const { return child_; }
  int socket() const { return accepted_.get(); }

 private:
  std::string path_;
  pid_t child_ = -1;
  UniqueFd accepted_;
};

// By the socket, and by the number.
using Watch = Result<UniqueFd> (*)(int socket);
class WatchPeer : public ::testing::TestWithParam<Watch> {};

TEST_P(WatchPeer, TellsTheEndOfTheProcessThatConnected) {
  Peer peer([](int) { ::pause(); });
  const auto watch = GetParam()(peer.socket());
  ASSERT_TRUE(watch.is_ok() && watch.value().valid());
  EXPECT_FALSE(has_ended(watch.value().get()));
  peer.end();
  EXPECT_TRUE(ends_within(watch.value().get(), kLimitMs));
  EXPECT_TRUE(has_ended(watch.value().get()));
}

TEST_P(WatchPeer, AZombieHasEnded) {
  Peer peer([](int) {});
  // The socket is closed when it ends; nobody has waited for it.
  pollfd closed{peer.socket(), POLLIN, 0};
  ASSERT_EQ(::poll(&closed, 1, kLimitMs), 1);
  for (int waited = 0; waited < kLimitMs; ++waited) {
    const auto watch = GetParam()(peer.socket());
    if (!watch.is_ok()) {
      EXPECT_EQ(watch.status().code(), Code::kRankLost);
      return;
    }
    ::usleep(1'000);
  }
  FAIL() << "a zombie is watched as if it lived";
}

TEST_P(WatchPeer, AProcessThatWasWaitedForHasEnded) {
  Peer peer([](int) {});
  peer.end();
  const auto watch = GetParam()(peer.socket());
  ASSERT_FALSE(watch.is_ok());
  EXPECT_EQ(watch.status().code(), Code::kRankLost);
}

TEST_P(WatchPeer, TheEndOfTheFirstThreadIsNotThatOfTheProcess) {
  Peer peer([](int socket) {
    std::thread([socket] {
      char go;
      (void)!::read(socket, &go, 1);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // of this thread alone; pthread_exit would unwind the test
  });
  const auto watch = GetParam()(peer.socket());
  ASSERT_TRUE(watch.is_ok() && watch.value().valid());
  EXPECT_FALSE(ends_within(watch.value().get(), 200));
  ASSERT_EQ(::write(peer.socket(), "g", 1), 1);
  EXPECT_TRUE(ends_within(watch.value().get(), kLimitMs));
}

INSTANTIATE_TEST_SUITE_P(All, WatchPeer, ::testing::Values(Watch{watch_peer}, Watch{watch_peer_by_number}),
                         [](const auto& way) { return way.index == 0 ? "BySocket" : "ByNumber"; });

}  // namespace
}  // namespace hdt
