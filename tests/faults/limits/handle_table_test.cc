// handle_table_test.cc: handles are never taken for one another, whoever ends them, and whatever value is
// tried.
#include "libclient/api/handle_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace hdt::client {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>* count) : live(count) { ++*live; }
  Counted(Counted&& other) noexcept : live(std::exchange(other.live, nullptr)) {}
  ~Counted() {
    if (live != nullptr) --*live;
  }
  std::atomic<int>* live;
};

TEST(HandleTable, FindsWhatIsThereAndNothingElse) {
  static HandleTable<Counted, 1> table;
  static std::atomic<int> live{0};
  std::vector<uintptr_t> handles;
  for (int i = 0; i < 1000; ++i) handles.push_back(table.make(Counted(&live)));
  EXPECT_EQ(live, 1000);
  for (uintptr_t handle : handles) EXPECT_TRUE(table.find(handle));
  for (uintptr_t wrong :
       {uintptr_t{0}, uintptr_t{1}, uintptr_t{8}, ~uintptr_t{0}, handles[0] + 8000 * 8, handles[0] + 1,
        handles[0] ^ (uintptr_t{1} << 60), reinterpret_cast<uintptr_t>(&live)}) {
    const bool known = std::find(handles.begin(), handles.end(), wrong) != handles.end();
    EXPECT_EQ(static_cast<bool>(table.find(wrong)), known) << wrong;
  }
  for (uintptr_t handle : handles) EXPECT_TRUE(table.find(handle).end());
  EXPECT_EQ(live, 0);
  for (uintptr_t handle : handles) EXPECT_FALSE(table.find(handle));
}

TEST(HandleTable, GivesNoValueTwice) {
  static HandleTable<Counted, 1> table;
  static std::atomic<int> live{0};
  std::set<uintptr_t> seen;
  for (int i = 0; i < 5000; ++i) {
    const uintptr_t handle = table.make(Counted(&live));
    EXPECT_TRUE(seen.insert(handle).second);
    EXPECT_TRUE(table.find(handle).end());
  }
  EXPECT_EQ(live, 0);
}

TEST(HandleTable, WhatIsInUseStays) {
  static HandleTable<Counted, 1> table;
  static std::atomic<int> live{0};
  const uintptr_t handle = table.make(Counted(&live));
  {
    const auto user = table.find(handle);
    EXPECT_TRUE(table.find(handle).end());
    EXPECT_FALSE(table.find(handle));
    EXPECT_FALSE(user.end());  // somebody has
    EXPECT_EQ(live, 1);
  }
  EXPECT_EQ(live, 0);
}

TEST(HandleTable, ManyThreadsEndTheSame) {
  static HandleTable<Counted, 1> table;
  static std::atomic<int> live{0};
  for (int round = 0; round < 200; ++round) {
    const uintptr_t handle = table.make(Counted(&live));
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 50; ++j) {
          if (const auto ref = table.find(handle); ref && j == 20 && ref.end()) ++ended;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(ended, 1);
  }
  EXPECT_EQ(live, 0);
}

}  // namespace
}  // namespace hdt::client
