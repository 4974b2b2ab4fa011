// example_run.h: the buffers of one call on one rank: filled, handed to the library, and compared with the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/integration/communicator/elements.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {

// Memory for a vector: of hdtMemAlloc, or ordinary.
template <typename T>
struct EitherMemory {
  using value_type = T;
  explicit EitherMemory(bool is_shared) : shared(is_shared) {}
  template <typename U>
  EitherMemory(const EitherMemory<U>& other) : shared(other.shared) {}  // NOLINT(google-explicit-constructor)
  T* allocate(size_t count) {
    if (!shared) return std::allocator<T>().allocate(count);
    void* memory = nullptr;
    HDT_EXPECT(hdtMemAlloc(&memory, count * sizeof(T)));
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    if (!shared) return std::allocator<T>().deallocate(memory, count);
    HDT_EXPECT(hdtMemFree(memory));
  }
  // New elements are what the memory holds: a vector sets them one by one, which takes sanitizers longer than the call that
  // is tested. Who needs them set does so by memset().
  template <typename U>
  void construct(U*) {}
  bool operator==(const EitherMemory& other) const { return shared == other.shared; }
  bool shared;
};
using Bytes = std::vector<std::byte, EitherMemory<std::byte>>;

class ExampleRun {
 public:
  ExampleRun(const Example& example, const Rank& self)
      : example_(example),
        self_(self),
        sent_(EitherMemory<std::byte>(example.shared)),
        received_(EitherMemory<std::byte>(example.shared)) {
    const size_t width = hdtTypeSize(example.type);
    const size_t send = example.send_count(self.ranks);
    const size_t receive = example.receive_count(self.ranks);
    received_.resize((example.in_place ? std::max(send, receive) : receive) * width + kGuard);
    std::memset(received_.data(), std::to_integer<int>(kUntouched), received_.size());
    if (!example.in_place) sent_.resize(send * width);
    if (example.in_place && example.operation == Operation::kAllGather) send_at_ = offset(width);
    if (example.in_place && example.operation == Operation::kReduceScatter) receive_at_ = offset(width);
    original_ = contributions(example, self.rank, self.ranks);
    if (send > 0) std::memcpy(send_buffer(), original_.data(), original_.size());
  }

  // Posts the call; with `request` null it is complete on return.
  void start(hdtRequest_t* request) {
    const Example& e = example_;
    void* to = received_.data() + receive_at_;
    const void* from = send_buffer();
    switch (e.operation) {
      case Operation::kAllReduce:
        HDT_EXPECT(hdtAllReduce(from, to, e.count, e.type, e.op, self_.comm, request));
        break;
      case Operation::kReduce:
        HDT_EXPECT(hdtReduce(from, to, e.count, e.type, e.op, e.root, self_.comm, request));
        break;
      case Operation::kReduceScatter:
        HDT_EXPECT(hdtReduceScatter(from, to, e.count, e.type, e.op, self_.comm, request));
        break;
      case Operation::kAllGather:
        HDT_EXPECT(hdtAllGather(from, to, e.count, e.type, self_.comm, request));
        break;
      case Operation::kBroadcast:
        HDT_EXPECT(hdtBroadcast(from, to, e.count, e.type, e.root, self_.comm, request));
        break;
    }
  }

  void verify() const {
    const Example& e = example_;
    const size_t width = hdtTypeSize(e.type);
    const size_t receive = e.receive_count(self_.ranks);
    EXPECT_TRUE(sent_.empty() || std::memcmp(sent_.data(), original_.data(), sent_.size()) == 0)
        << e.name() << " changed its sendbuf";
    EXPECT_TRUE(is_untouched(received_.size() - kGuard)) << e.name() << " wrote behind its recvbuf";
    if (e.operation == Operation::kReduce && self_.rank != e.root) {
      EXPECT_TRUE(e.in_place || is_untouched(0)) << e.name() << " wrote to a recvbuf that is not the root's";
      return;
    }
    // Averages round at the end, and once for every hop between nodes.
    const double relative = e.reduces() && e.op == HDT_AVG ? 2 * precision(e.type) : 0;
    std::vector<std::byte> got(receive * width);
    if (receive > 0) std::memcpy(got.data(), received_.data() + receive_at_, got.size());
    const Difference found = compare(e, self_.ranks, self_.rank, got, relative);
    EXPECT_EQ(found.wrong, 0U) << e.name() << " on rank " << self_.rank << ": first wrong element "
                               << found.first << " is " << load(e.type, got.data() + found.first * width)
                               << ", not " << expected(e, self_.ranks, self_.rank, found.first);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kUntouched{0xA5};

  // From `first` on each byte is the one before it, by memcmp(): see EitherMemory.
  bool is_untouched(size_t first) const {
    const std::byte* bytes = received_.data() + first;
    return *bytes == kUntouched && std::memcmp(bytes, bytes + 1, received_.size() - first - 1) == 0;
  }
  size_t offset(size_t width) const { return static_cast<size_t>(self_.rank) * example_.count * width; }
  std::byte* send_buffer() { return example_.in_place ? received_.data() + send_at_ : sent_.data(); }

  Example example_;
  Rank self_;
  Bytes sent_, received_;
  std::vector<std::byte> original_;  // of sendbuf
  size_t send_at_ = 0;
  size_t receive_at_ = 0;
};

}  // namespace hdt::testing
