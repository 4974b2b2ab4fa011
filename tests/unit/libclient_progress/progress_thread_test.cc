// progress_thread_test.cc: the thread ends when it is to, whatever it is doing just then.
#include "libclient/group/progress_thread.h"

#include <gtest/gtest.h>

#include <thread>

namespace hdt::client {
namespace {

// A process may exit just when the thread is about to go to sleep. The exit waits for the thread, so a lost
// ring is a process that never ends.
TEST(ProgressThread, EndsWheneverItIsAsked) {
  for (int i = 0; i < 5'000; ++i) {
    ProgressThread thread;
    ASSERT_TRUE(thread.start().is_ok());
    for (int turns = 0; turns < i % 20; ++turns) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace hdt::client
