// failed_allocations_test.cc: what must not stay behind where an allocation fails. Each test lets the first
// allocation of an action fail, then the second, and so on, until the action succeeds.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

#include "base/seqpacket.h"
#include "base/shared_memory.h"
#include "daemon/engine/session_table.h"
#include "daemon/group/direct_memory.h"
#include "daemon/group/group_table.h"
#include "tests/unit/daemon_engine/played.h"
#include "tests/unit/daemon_engine/sharing.h"
#include "tests/unit/failed_allocations/failing_new.h"

namespace hdt {
namespace {

// Runs `action` with its n-th allocation failing, for n = 1, 2, ... until none fails; `after` checks the
// state after each run. Returns how often one has failed.
template <typename Action, typename After>
int fail_each_allocation(Action&& action, After&& after) {
  for (int n = 1;; ++n) {
    bool failed = false;
    hdt::testing::failing_allocation = n;
    try {
      action();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    hdt::testing::failing_allocation = 0;
    after(n);
    if (!failed) return n - 1;
  }
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(FailedAllocations, AMessageThatCannotBeReceivedLeavesNoDescriptorOpen) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd here(ends[0]), there(ends[1]);
  auto memory = SharedMemory::create("test", 4096);
  ASSERT_TRUE(memory.is_ok()) << memory.status().message();
  const std::array<int, 3> fds = {memory.value().fd(), memory.value().fd(), memory.value().fd()};
  const std::array<std::byte, 100> bytes{};
  const size_t before = open_descriptors();
  const int failures = fail_each_allocation(
      [&] {
        // A message that was left in the socket by a run before this one is not another one's.
        std::array<std::byte, 8> rest;
        while (::recv(here.get(), rest.data(), rest.size(), MSG_DONTWAIT) > 0) {
        }
        if (!send_packet(there.get(), bytes, fds).is_ok()) std::abort();
        const auto packet = receive_packet(here.get());
        if (!packet.is_ok() || packet.value().fds.size() != fds.size()) std::abort();
      },
      [&](int n) { EXPECT_EQ(open_descriptors(), before) << "allocation " << n; });
  EXPECT_GE(failures, 2);  // the descriptors and the bytes
}

TEST(FailedAllocations, MemoryThatIsRegisteredIsDeregistered) {
  const auto memory = std::make_shared<SharedMemory>(SharedMemory::create("test", 4096).take());
  daemon::PlayedServices services(memory);
  const int failures = fail_each_allocation(
      [&] {
        daemon::DirectMemory direct;
        direct.set_services(services);
        if (!direct.acquire(0, 1).is_ok()) std::abort();
        for (const uint32_t backend : {0u, 1u}) {
          if (!direct.key_for(1, backend, {}).is_ok()) std::abort();
        }
      },
      [&](int n) {
        EXPECT_EQ(services.registered, (std::array{0, 0})) << "allocation " << n;
      });
  EXPECT_GE(failures, 5);  // the memory's entry, a key and a grant for each backend
}

// The session of a rank has ended before the rank has got its seat: the group fails and must not stay.
TEST(FailedAllocations, ARankThatIsLostBeforeItHasItsSeatKeepsNoGroup) {
  int failures = 0;
  for (int n = 1; failures == n - 1; ++n) {
    daemon::GroupSpec spec;
    spec.id = 7;
    spec.group_class = "default";
    spec.node_of_rank = {0};
    spec.nodes.resize(1);
    spec.memory =
        std::make_shared<SharedMemory>(SharedMemory::create("group", ipc::Layout(1, 1, 1).total).take());
    daemon::GroupTable groups;
    const uint32_t index = groups.make_room();
    daemon::EngineGroup& group =
        groups.enter(index, std::make_unique<daemon::EngineGroup>(
                                std::move(spec), index, std::make_unique<daemon::PlayedServices>()));
    daemon::SessionTable sessions({}, -1, groups);
    hdt::testing::failing_allocation = n;
    sessions.attach(0, 0, 7, 0);
    if (std::exchange(hdt::testing::failing_allocation, 0) == 0) ++failures;
    EXPECT_TRUE(group.context().failed()) << "allocation " << n;
    EXPECT_FALSE(group.has_local_ranks()) << "allocation " << n;
  }
  EXPECT_GE(failures, 5);  // the failure's text, its place in the log, ...
}

// The process would go on to name memory that the engine does not have.
using FailedAllocationsOfAnEngine = daemon::SharingProcess;
TEST_F(FailedAllocationsOfAnEngine, MemoryThatTheEngineCannotTakeIsRefused) {
  close_gate(kEngineOfGroup);
  daemon_.engines.post(kEngineOfGroup, [](daemon::Engine&) { hdt::testing::failing_allocation = 1; });
  share(5);
  open_gate(kEngineOfGroup);
  ASSERT_TRUE(run_mailbox());
  const ipc::MemoryAnswer told = answer();
  EXPECT_EQ(told.request, 5U);
  EXPECT_EQ(told.code, Code::kSystem);
  EXPECT_EQ(told.memory, 0U);
  EXPECT_TRUE(daemon_.sessions->find(kSession)->memories.empty());
  share(6);
  ASSERT_TRUE(run_mailbox());
  EXPECT_EQ(answer().code, Code::kSuccess);
}

}  // namespace
}  // namespace hdt
