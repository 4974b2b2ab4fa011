// conformance_data.cc: bytes arrive: in order, once, in their place, of every size.
#include <algorithm>
#include <random>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

using Kind = Completion::Kind;

TEST_P(TransportConformance, MessagesArriveInOrderBothWays) {
  const Pair pair = connect();
  std::mt19937_64 random(test_seed());
  constexpr size_t kMessages = 500;
  std::vector<std::vector<std::byte>> there;
  std::vector<std::vector<std::byte>> back;
  for (size_t i = 0; i < kMessages; ++i) {
    there.push_back(random_bytes(1 + random() % kMaxMessageBytes, random()));
    back.push_back(random_bytes(1 + random() % 100, random()));
    ASSERT_TRUE(pair.client->send(there.back(), i + 1).is_ok());
    ASSERT_TRUE(pair.server->send(back.back(), 0).is_ok());
  }
  ASSERT_TRUE(run_until([&] {
    return b_.count(Kind::kMessage) == kMessages && a_.count(Kind::kMessage) == kMessages &&
           a_.count(Kind::kSent) == kMessages;
  }));
  for (size_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(b_.all(Kind::kMessage)[i]->message, there[i]);
    EXPECT_EQ(a_.all(Kind::kMessage)[i]->message, back[i]);
    EXPECT_EQ(a_.all(Kind::kSent)[i]->completion.token, i + 1);
  }
  EXPECT_EQ(b_.count(Kind::kSent), 0u) << "token 0 asks for no report";
}

TEST_P(TransportConformance, WritesOfEverySizeArePlaced) {
  const Pair pair = connect();
  const std::vector<size_t> sizes = {0, 1, 7, 64, 4095, 4096, 65535, 65536, 65537, 300'000, 1 << 20};
  const size_t total = 4 << 20;
  std::vector<std::byte> region(total);
  std::vector<std::byte> expected(total);
  const auto key = b_.enlist(region.data(), region.size());
  ASSERT_TRUE(key.is_ok());
  std::vector<std::vector<std::byte>> sources;
  uint64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sources.push_back(random_bytes(sizes[i], test_seed() + i));
    std::copy(sources[i].begin(), sources[i].end(), expected.begin() + static_cast<ptrdiff_t>(offset));
    ASSERT_TRUE(pair.client->write(sources[i].data(), sizes[i], key.value(), offset, immediate_of(i), 100 + i)
                    .is_ok());
    offset += sizes[i] + 3;
  }
  ASSERT_TRUE(run_until(
      [&] { return b_.count(Kind::kWritten) == sizes.size() && a_.count(Kind::kSent) == sizes.size(); }));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(value_of(b_.all(Kind::kWritten)[i]->completion.immediate), i);
    EXPECT_EQ(b_.all(Kind::kWritten)[i]->completion.bytes, sizes[i]);
    EXPECT_EQ(a_.all(Kind::kSent)[i]->completion.token, 100 + i);
    EXPECT_TRUE(a_.all(Kind::kSent)[i]->completion.error.is_ok());
  }
  EXPECT_EQ(region, expected) << "bytes in place, and none around them";
}

TEST_P(TransportConformance, BigWriteArrivesWhole) {
  const Pair pair = connect();
  const std::vector<std::byte> source = random_bytes(size_t{64} << 20, test_seed());
  std::vector<std::byte> region(source.size());
  const auto key = b_.enlist(region.data(), region.size());
  ASSERT_TRUE(key.is_ok());
  ASSERT_TRUE(pair.client->write(source.data(), source.size(), key.value(), 0, immediate_of(1), 1).is_ok());
  EXPECT_EQ(pair.client->write_window(), 0u) << "a full queue asks for no more";
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten) == 1 && a_.count(Kind::kSent) == 1; }));
  EXPECT_TRUE(same_bytes(source, region));
  EXPECT_GT(pair.client->write_window(), 0u);
}

TEST_P(TransportConformance, MixOfEverythingKeepsOrder) {
  std::mt19937_64 random(test_seed());
  constexpr size_t kConnections = 8;
  constexpr size_t kFrames = 300;
  constexpr size_t kSlot = 40'000;
  std::vector<Pair> pairs;
  for (size_t i = 0; i < kConnections; ++i) pairs.push_back(connect());
  const std::vector<std::byte> source = random_bytes(kSlot, random());
  std::vector<std::byte> region(kConnections * kFrames * kSlot / 8);
  const auto key = b_.enlist(region.data(), region.size());
  ASSERT_TRUE(key.is_ok());
  size_t writes = 0;
  for (uint64_t i = 0; i < kFrames; ++i) {
    for (const Pair& pair : pairs) {
      if (random() % 2 == 0) {
        const size_t bytes = random() % 8 == 0 ? 0 : random() % kSlot;
        ASSERT_TRUE(pair.client
                        ->write(source.data(), bytes, key.value(), random() % (region.size() - bytes),
                                immediate_of(i), i + 1)
                        .is_ok());
        ++writes;
      } else {
        std::vector<std::byte> message = random_bytes(8 + random() % 200, 1);
        const Immediate number = immediate_of(i);
        std::copy_n(number.begin(), 8, message.begin());
        ASSERT_TRUE(pair.client->send(message, i + 1).is_ok());
      }
    }
    if (i % 10 == 0) b_.poll();
  }
  constexpr size_t kAll = kConnections * kFrames;
  ASSERT_TRUE(run_until([&] {
    return b_.count(Kind::kWritten) + b_.count(Kind::kMessage) == kAll && a_.count(Kind::kSent) == kAll;
  }));
  EXPECT_EQ(b_.count(Kind::kWritten), writes);
  for (const Pair& pair : pairs) {
    std::vector<uint64_t> numbers;
    for (const Event& event : b_.events) {
      if (event.completion.connection != pair.server) continue;
      if (event.completion.kind == Kind::kWritten) numbers.push_back(value_of(event.completion.immediate));
      if (event.completion.kind != Kind::kMessage) continue;
      Immediate number{};
      std::copy_n(event.message.begin(), 8, number.begin());
      numbers.push_back(value_of(number));
    }
    ASSERT_EQ(numbers.size(), kFrames);
    for (uint64_t i = 0; i < kFrames; ++i) EXPECT_EQ(numbers[i], i);
  }
}

TEST_P(TransportConformance, ReaderThatDoesNotPollHoldsTheWriterBack) {
  const Pair pair = connect();
  const std::vector<std::byte> source = random_bytes(256 << 10, test_seed());
  constexpr uint64_t kMost = 4096;  // 1 GiB: more than any kernel buffers
  std::vector<std::byte> region(source.size());
  const auto key = b_.enlist(region.data(), region.size());
  ASSERT_TRUE(key.is_ok());
  uint64_t posted = 0;
  // Only a_ is polled. It is stuck when it has no window and nothing to do.
  std::vector<Completion> completions;
  do {
    while (pair.client->write_window() > 0 && posted < kMost) {
      ASSERT_TRUE(
          pair.client->write(source.data(), source.size(), key.value(), 0, immediate_of(posted), posted + 1)
              .is_ok());
      ++posted;
    }
    a_.poll();
  } while (pair.client->write_window() > 0 && posted < kMost);
  ASSERT_LT(posted, kMost) << "the window never closed";
  ASSERT_TRUE(
      run_until([&] { return b_.count(Kind::kWritten) == posted && a_.count(Kind::kSent) == posted; }));
  EXPECT_GT(pair.client->write_window(), 0u);
  EXPECT_TRUE(same_bytes(region, source));
}

}  // namespace hdt::transport
