// sharing.h: a process that shares memory with a daemon of two engines. The test plays the control thread: it
// has the daemon's parts that deal with it, and runs the mailbox when it wants to.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/seqpacket.h"
#include "daemon/control/answers.h"
#include "daemon/control/class_changes.h"
#include "daemon/control/diagnosis.h"
#include "daemon/control/doctor.h"
#include "daemon/control/joins.h"
#include "daemon/control/requests.h"
#include "daemon/control/restarts.h"
#include "tests/unit/daemon_engine/played.h"

namespace hdt::daemon {

class SharingProcess : public ::testing::Test {
 protected:
  static constexpr uint64_t kSession = 1;
  static constexpr uint64_t kGroup = 7;
  static constexpr uint32_t kHandle = 3;
  static constexpr uint32_t kEngines = 2;
  static constexpr uint32_t kEngineOfGroup = 1;
  static constexpr int kPatienceMs = 30'000;

  SharingProcess() {
    for (uint32_t i = 0; i < kEngines; ++i) {
      EngineOptions options;
      options.index = i;
      options.node_name = "here";
      auto engine = std::make_unique<Engine>(std::move(options), events_);
      EXPECT_TRUE(engine->start().is_ok());
      daemon_.engines.add(std::move(engine));
    }
    daemon_.limits = std::make_unique<UserLimits>(daemon_.config.limits, 3 + kEngines);
    ClientSessions::Options options;
    options.engines = kEngines;
    daemon_.sessions = std::make_unique<ClientSessions>(std::move(options), *daemon_.limits, requests_);
    const std::string path = "/tmp/hdt-sharing-test-" + std::to_string(::getpid()) + ".sock";
    EXPECT_TRUE(daemon_.sessions->listen(path, epoll_.get()).is_ok());
    process_ = connect_seqpacket(path).take();
    daemon_.sessions->accept_some();
    send(ipc::encode(ipc::Hello{"test"}));
    handle();
    EXPECT_EQ(kind_of_next(), ipc::Kind::kWelcome);
    // As Joins::take_seat() does when the group has been made.
    daemon_.sessions->find(kSession)->seats[kHandle] = {kEngineOfGroup, kGroup, {}, nullptr};
  }
  ~SharingProcess() override {
    for (auto& gate : gates_) gate.open();
    daemon_.sessions->stop_listening();
  }

  void send(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    ASSERT_TRUE(send_packet(process_.get(), bytes, fds).is_ok());
  }
  // The daemon reads what the process has sent.
  void handle() { daemon_.sessions->read_all(); }
  // Asks to share memory, and has the daemon read that.
  void share(uint32_t request) {
    const std::array<int, 1> fds = {memory_.fd()};
    send(ipc::encode(ipc::Kind::kShare, ipc::MemoryRequest{request, kHandle, 0}), fds);
    handle();
  }
  // Something has come for the process.
  bool is_answered() const {
    pollfd ready{process_.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }
  ipc::Kind kind_of_next() { return ipc::kind_of(receive_packet(process_.get()).take().bytes).value(); }
  ipc::MemoryAnswer answer() {
    EXPECT_TRUE(is_answered());
    if (!is_answered()) return {};
    return ipc::decode_memory_answer(receive_packet(process_.get()).take().bytes).take();
  }
  // Runs what engines have posted, until there is something. False: nothing came.
  bool run_mailbox() {
    pollfd ready{daemon_.mailbox.fd(), POLLIN, 0};
    return ::poll(&ready, 1, kPatienceMs) == 1 && daemon_.mailbox.run();
  }

  // Returns when the engines have done what was posted to them, and have let go of it: they do that after a
  // whole batch, in which the first of two questions may be.
  void pass_engines() {
    for (int question = 0; question < 2; ++question)
      EXPECT_TRUE(daemon_.engines.ask([](Engine&) { return true; }));
  }

  // An engine does nothing more until its gate is opened.
  struct Gate {
    std::promise<void> opened;
    bool is_open = true;
    void open() {
      if (!std::exchange(is_open, true)) opened.set_value();
    }
  };
  void close_gate(uint32_t engine) {
    gates_[engine].is_open = false;
    daemon_.engines.post(engine,
                         [gate = gates_[engine].opened.get_future().share()](Engine&) { gate.wait(); });
  }
  void open_gate(uint32_t engine) { gates_[engine].open(); }

  // Stand-ins for the parts that the session's end needs and that are not here.
  class MemoryRequests : public Requests {
   public:
    explicit MemoryRequests(ControlParts& daemon) : Requests(daemon), daemon_(daemon) {}
    void on_session_ended(uint64_t session, const std::string& how) override {
      daemon_.engines.post_all(
          [session, how](Engine& engine) { engine.sessions().process_ended(session, how); });
    }

   private:
    ControlParts& daemon_;
  };

  const UniqueFd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  PlayedControl events_;
  std::array<Gate, kEngines> gates_;
  ControlParts daemon_{Config{}, 0};
  MemoryRequests requests_{daemon_};
  UniqueFd process_;
  const SharedMemory memory_ = SharedMemory::create("shared", 4096).take();
};

}  // namespace hdt::daemon
