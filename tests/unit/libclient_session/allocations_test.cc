// allocations_test.cc: memory of hdtMemAlloc, while the daemon, which the test plays, is asked for its
// number.
#include "libclient/daemon_client/allocations.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <utility>

#include "tests/unit/libclient_session/played_daemon.h"

namespace hdt::client {
namespace {

constexpr uint32_t kHandle = 3;
constexpr size_t kBytes = 10'000;

class AllocationsTest : public ::testing::Test {
 protected:
  AllocationsTest() {
    auto opening = std::async(std::launch::async, [&] { return Session::open(daemon_.path()); });
    daemon_.greet(0);
    session_ = opening.get().take();
    // The tests answer in time, or not at all.
    session_->set_answer_ms(600'000);
    pointer_ = all_.allocate(kBytes).take();
  }
  ~AllocationsTest() override {
    if (pointer_ != nullptr) {
      EXPECT_TRUE(all_.free(pointer_).is_ok());
    }
  }

  std::future<Result<Allocations::Place>> locate(size_t offset) {
    return std::async(std::launch::async, [this, offset] {
      return all_.locate(static_cast<std::byte*>(pointer_) + offset, 8, session_, kHandle);
    });
  }
  // The number of the question that the daemon was asked.
  uint32_t hear() {
    const auto asked = ipc::decode_memory_request(daemon_.hear(ipc::Kind::kShare).bytes);
    EXPECT_TRUE(asked.is_ok());
    return asked.is_ok() ? asked.value().request : 0;
  }
  void answer(uint32_t request, Code code, uint64_t number) {
    EXPECT_TRUE(daemon_.send(ipc::encode(ipc::MemoryAnswer{request, code, "", number})));
  }
  static void expect_place(std::future<Result<Allocations::Place>>& future, uint64_t number,
                           uint64_t offset) {
    ASSERT_EQ(future.wait_for(kTime), std::future_status::ready);
    const auto place = future.get();
    ASSERT_TRUE(place.is_ok()) << place.status().message();
    EXPECT_EQ(place.value().memory, number);
    EXPECT_EQ(place.value().offset, offset);
  }

  PlayedDaemon daemon_;
  Allocations& all_ = Allocations::instance();
  std::shared_ptr<Session> session_;
  void* pointer_ = nullptr;
};

// A thread that asks for other memory, or for memory whose number is known, does not wait.
TEST_F(AllocationsTest, AThreadThatAsksTheDaemonHoldsUpNoOther) {
  auto asking = locate(0);
  const uint32_t request = hear();
  auto others = std::async(std::launch::async, [this] {
    const auto other = all_.allocate(kBytes);
    int own = 0;
    return other.is_ok() && all_.locate(&own, sizeof own, session_, kHandle).is_ok() &&
           all_.free(other.value()).is_ok();
  });
  EXPECT_EQ(others.wait_for(kTime), std::future_status::ready) << "they wait for the daemon's answer";
  answer(request, Code::kSuccess, 77);
  expect_place(asking, 77, 0);
  EXPECT_TRUE(others.get());
  auto known = locate(16);
  expect_place(known, 77, 16);
}

TEST_F(AllocationsTest, TwoThreadsShareTheSameMemoryOnce) {
  auto first = locate(0);
  const uint32_t request = hear();
  auto second = locate(16);
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  answer(request, Code::kSuccess, 77);
  expect_place(first, 77, 0);
  expect_place(second, 77, 16);  // the daemon was asked once, or this one waited for an answer
}

TEST_F(AllocationsTest, AThreadThatWaitsAsksItselfAfterARefusal) {
  auto first = locate(0);
  const uint32_t request = hear();
  auto second = locate(16);
  answer(request, Code::kSystem, 0);
  ASSERT_EQ(first.wait_for(kTime), std::future_status::ready);
  EXPECT_EQ(first.get().status().code(), Code::kSystem);
  answer(hear(), Code::kSuccess, 78);
  expect_place(second, 78, 16);
}

TEST_F(AllocationsTest, MemoryThatIsFreedMeanwhileIsNotShared) {
  auto asking = locate(0);
  const uint32_t request = hear();
  ASSERT_TRUE(all_.free(std::exchange(pointer_, nullptr)).is_ok());
  answer(request, Code::kSuccess, 79);
  expect_place(asking, 0, 0);
  const auto undone = ipc::decode_memory_request(daemon_.hear(ipc::Kind::kUnshare).bytes);
  ASSERT_TRUE(undone.is_ok());
  EXPECT_EQ(undone.value().memory, 79U);
}

}  // namespace
}  // namespace hdt::client
