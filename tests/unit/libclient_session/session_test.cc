// session_test.cc: a session whose daemon the test plays. The last owner of a session may give it up in one
// of its callbacks, on the reader thread: afterwards that thread must not touch the session. The address
// sanitizer sees it if it does. And the daemon may answer when nobody waits any more.
#include "libclient/daemon_client/session.h"

#include <gtest/gtest.h>

#include <array>
#include <future>

#include "tests/unit/libclient_session/played_daemon.h"

namespace hdt::client {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  void open(int64_t restart_ms) {
    auto opening = std::async(std::launch::async, [&] { return Session::open(daemon_.path()); });
    daemon_.greet(restart_ms);
    auto opened = opening.get();
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    session_ = opened.take();
    joined_.memory = SharedMemory::create("group", 4096).take();
    joined_.life = 1;
  }
  // On the reader thread, as the last communicator of a process does.
  void give_up() {
    session_.reset();
    given_up_.set_value();
  }

  PlayedDaemon daemon_;
  JoinedGroup joined_;
  std::shared_ptr<Session> session_;
  std::promise<void> given_up_;
};

TEST_F(SessionTest, MayEndWhenItsDaemonIsAway) {
  open(5'000);
  session_->watch({&joined_, [](const Status&) {}, [this] { give_up(); }});
  daemon_.end();
  EXPECT_EQ(given_up_.get_future().wait_for(kTime), std::future_status::ready);
}

TEST_F(SessionTest, MayEndWhenItsDaemonIsLost) {
  open(0);
  session_->watch({&joined_,
                   [this](const Status& why) {
                     EXPECT_EQ(why.code(), Code::kDaemonLost);
                     give_up();
                   },
                   {}});
  daemon_.end();
  EXPECT_EQ(given_up_.get_future().wait_for(kTime), std::future_status::ready);
}

TEST_F(SessionTest, MayEndWhenTheSuccessorTakesNoGroup) {
  open(20'000);
  JoinedGroup other;
  other.memory = SharedMemory::create("other", 4096).take();
  other.life = 1;
  std::promise<Status> refused;
  session_->watch({&joined_, [this](const Status&) { give_up(); }, {}});
  session_->watch({&other, [&](const Status& why) { refused.set_value(why); }, {}});
  daemon_.end();
  daemon_.listen();
  daemon_.greet(20'000);
  // Both seats have the handle 0: one message refuses both groups, and the first one ends the session.
  ASSERT_TRUE(daemon_.send(
      ipc::encode(ipc::Kind::kNotAdopted, ipc::GroupNotice{0, Code::kInternal, -1, "another segment"})));
  EXPECT_EQ(given_up_.get_future().wait_for(kTime), std::future_status::ready);
  std::future<Status> why = refused.get_future();
  ASSERT_EQ(why.wait_for(kTime), std::future_status::ready);
  EXPECT_NE(why.get().message().find("another segment"), std::string::npos);
}

// A question that was given up, and then another one of its kind.
TEST_F(SessionTest, ALateAnswerIsNotTakenForTheNextOne) {
  open(0);
  session_->set_answer_ms(1);
  EXPECT_EQ(session_->rendezvous_address().status().code(), Code::kTimeout);
  daemon_.hear(ipc::Kind::kRendezvous);
  session_->set_answer_ms(30'000);
  auto asking = std::async(std::launch::async, [this] { return session_->rendezvous_address(); });
  daemon_.hear(ipc::Kind::kRendezvous);
  for (const char* const answer : {"late", "in time"})
    ASSERT_TRUE(daemon_.send(ipc::encode_text(ipc::Kind::kRendezvousAt, Code::kSuccess, answer)));
  ASSERT_EQ(asking.wait_for(kTime), std::future_status::ready);
  const auto address = asking.get();
  ASSERT_TRUE(address.is_ok()) << address.status().message();
  EXPECT_EQ(address.value(), "in time");
}

// The others in the group wait for the rank, which has gone on.
TEST_F(SessionTest, ASeatThatComesTooLateIsGivenUp) {
  open(0);
  session_->set_answer_ms(1);
  ipc::JoinRequest request;
  request.ranks = 2;
  request.group_class = "dp";
  request.timeout_ms = 1;
  EXPECT_EQ(session_->join(request).status().code(), Code::kTimeout);
  const auto asked = ipc::decode_join(daemon_.hear(ipc::Kind::kJoin).bytes);
  ASSERT_TRUE(asked.is_ok());
  ipc::Joined joined;
  joined.request = asked.value().request;
  joined.handle = 3;
  const std::array<int, 1> fds = {joined_.memory.fd()};
  ASSERT_TRUE(daemon_.send(ipc::encode(joined), fds));
  const auto failed = ipc::decode_notice(daemon_.hear(ipc::Kind::kFail).bytes);
  ASSERT_TRUE(failed.is_ok());
  EXPECT_EQ(failed.value().handle, 3U);
  EXPECT_EQ(failed.value().code, Code::kTimeout);
  const auto left = ipc::decode_notice(daemon_.hear(ipc::Kind::kLeave).bytes);
  ASSERT_TRUE(left.is_ok());
  EXPECT_EQ(left.value().handle, 3U);
}

TEST_F(SessionTest, MemoryWhoseNumberComesTooLateIsNotShared) {
  open(0);
  session_->set_answer_ms(1);
  EXPECT_EQ(session_->share(0, joined_.memory).status().code(), Code::kTimeout);
  const auto asked = ipc::decode_memory_request(daemon_.hear(ipc::Kind::kShare).bytes);
  ASSERT_TRUE(asked.is_ok());
  ASSERT_TRUE(daemon_.send(ipc::encode(ipc::MemoryAnswer{asked.value().request, Code::kSuccess, "", 77})));
  const auto undone = ipc::decode_memory_request(daemon_.hear(ipc::Kind::kUnshare).bytes);
  ASSERT_TRUE(undone.is_ok());
  EXPECT_EQ(undone.value().memory, 77U);
}

// The daemon ends with its answer. Whether the process has taken it or not, the successor knows the number
// that the process goes on with: it was given the memory, or was asked for a number of its own.
TEST_F(SessionTest, MemoryIsKnownToTheDaemonThatIsThere) {
  open(30'000);
  for (uint64_t number = 100; number < 120; ++number) {
    auto sharing = std::async(std::launch::async, [this] { return session_->share(0, joined_.memory); });
    auto asked = ipc::decode_memory_request(daemon_.hear(ipc::Kind::kShare).bytes);
    ASSERT_TRUE(asked.is_ok());
    ASSERT_TRUE(
        daemon_.send(ipc::encode(ipc::MemoryAnswer{asked.value().request, Code::kSuccess, "", number})));
    daemon_.end();
    daemon_.listen();
    daemon_.greet(30'000);
    auto again = ipc::decode_memory_request(daemon_.hear(ipc::Kind::kShare).bytes);
    ASSERT_TRUE(again.is_ok());
    uint64_t known = again.value().memory;
    if (known == 0) {
      known = number + 1'000;
      ASSERT_TRUE(
          daemon_.send(ipc::encode(ipc::MemoryAnswer{again.value().request, Code::kSuccess, "", known})));
    }
    ASSERT_EQ(sharing.wait_for(kTime), std::future_status::ready);
    const auto shared = sharing.get();
    ASSERT_TRUE(shared.is_ok()) << shared.status().message();
    EXPECT_EQ(shared.value(), known);
    session_->unshare(known);
    daemon_.hear(ipc::Kind::kUnshare);
  }
}

}  // namespace
}  // namespace hdt::client
