// arrivals_test.cc: counting fragments of many messages in any order, and the limits.
#include "transports/link/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace hdt::transport {

namespace {
FragmentHeader fragment_of(uint64_t id, uint64_t message_bytes, uint64_t index) {
  FragmentHeader fragment;
  fragment.message_id = id;
  fragment.message_bytes = message_bytes;
  fragment.pages = kMinFragmentBytes / kFragmentPage;
  fragment.index = static_cast<uint32_t>(index);
  return fragment;
}
}  // namespace

TEST(Arrivals, EveryMessageIsCompleteOnceInAnyOrder) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<FragmentHeader> fragments;
    constexpr uint64_t kMessages = 50;
    for (uint64_t id = 0; id < kMessages; ++id) {
      const uint64_t bytes = random() % (20 * kMinFragmentBytes);
      for (uint64_t i = 0; i < fragment_of(id, bytes, 0).count(); ++i)
        fragments.push_back(fragment_of(id, bytes, i));
    }
    std::shuffle(fragments.begin(), fragments.end(), random);
    Arrivals arrivals;
    std::set<uint64_t> complete;
    for (size_t i = 0; i < fragments.size(); ++i) {
      const Result<bool> last = arrivals.add(fragments[i]);
      ASSERT_TRUE(last.is_ok()) << last.status().to_string();
      const uint64_t id = fragments[i].message_id;
      const bool more = std::any_of(fragments.begin() + static_cast<ptrdiff_t>(i) + 1, fragments.end(),
                                    [id](const FragmentHeader& later) { return later.message_id == id; });
      EXPECT_EQ(last.value(), !more);
      if (last.value()) {
        EXPECT_TRUE(complete.insert(id).second);
      }
    }
    EXPECT_EQ(complete.size(), kMessages);
    EXPECT_EQ(arrivals.open_messages(), 0u);
  }
}

TEST(Arrivals, IncompleteMessagesAreLimitedInNumberAndSize) {
  Arrivals many;
  for (uint64_t id = 0; id < Arrivals::kMaxOpenMessages; ++id) {
    ASSERT_TRUE(many.add(fragment_of(id, 2 * kMinFragmentBytes, 0)).is_ok());
  }
  EXPECT_FALSE(many.add(fragment_of(1 << 19, 2 * kMinFragmentBytes, 0)).is_ok());
  EXPECT_TRUE(many.add(fragment_of(1 << 18, kMinFragmentBytes, 0)).value())
      << "one fragment needs no book-keeping";
  EXPECT_TRUE(many.add(fragment_of(7, 2 * kMinFragmentBytes, 1)).value());
  EXPECT_TRUE(many.add(fragment_of(1 << 19, 2 * kMinFragmentBytes, 0)).is_ok()) << "there is room again";

  Arrivals large;
  const uint64_t per_message = kMaxLinkWriteBytes / kMinFragmentBytes;
  uint64_t id = 0;
  while (large.add(fragment_of(id, kMaxLinkWriteBytes, 0)).is_ok()) ASSERT_LT(++id, 100u);
  EXPECT_EQ(id, Arrivals::kMaxOpenFragments / per_message);
}

// A fragment of a message that was complete would be placed where something newer may lie.
TEST(Arrivals, WhatWasCompleteDoesNotCountAgain) {
  Arrivals arrivals;
  for (const uint64_t id : {2, 0, 1, 4}) ASSERT_TRUE(arrivals.add(fragment_of(id, 100, 0)).value());
  for (const uint64_t id : {0, 1, 2, 4}) EXPECT_FALSE(arrivals.add(fragment_of(id, 100, 0)).is_ok()) << id;
  EXPECT_TRUE(arrivals.add(fragment_of(3, 100, 0)).value());
  EXPECT_FALSE(arrivals.add(fragment_of(3, 100, 0)).is_ok());
  EXPECT_FALSE(arrivals.add(fragment_of(5 + Arrivals::kMaxAhead, 100, 0)).is_ok()) << "too far ahead";
}

}  // namespace hdt::transport
