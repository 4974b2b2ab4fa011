// resource_use_test.cc: processor time of processes and what is taken from two readings.
#include "bench/commbench/resource_use.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace hdt::bench {
namespace {

TEST(ResourceUse, DifferenceLeavesOutSilentInterfaces) {
  const ResourceUse used =
      difference({1.5, {{"lo", 100}, {"eth0", 7}}}, {2.0, {{"lo", 150}, {"eth0", 7}, {"new", 3}}});
  EXPECT_DOUBLE_EQ(used.cpu_s, 0.5);
  EXPECT_EQ(used.sent_bytes, (std::map<std::string, uint64_t>{{"lo", 50}, {"new", 3}}));
}

TEST(ResourceUse, WorkShowsAsProcessorTime) {
  const ResourceMeter meter(getpid());  // the process counts twice: as itself and as its daemon
  const ResourceUse before = meter.read();
  const double until = before.cpu_s / 2 + 0.05;
  volatile uint64_t sum = 0;
  while (process_cpu_s(getpid()) < until) sum = sum + 1;
  EXPECT_GE(difference(before, meter.read()).cpu_s, 0.05);
}

TEST(ResourceUse, AProcessThatIsNotThereUsesNothing) { EXPECT_EQ(process_cpu_s(0x7fffffff), 0); }

TEST(ResourceUse, TheListenerOfASocketIsFound) {
  const std::string path = "/tmp/hdt-bench-listener-" + std::to_string(getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listener_of(path), 0);  // bound, but not listening
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_EQ(listener_of(path), getpid());
  close(fd);
  unlink(path.c_str());
  EXPECT_EQ(listener_of(path), 0);
  EXPECT_EQ(listener_of(""), 0);
}

}  // namespace
}  // namespace hdt::bench
