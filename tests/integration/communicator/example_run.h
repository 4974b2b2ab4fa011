// example_run.h: the buffers of one call on one rank: filled, handed to the library, and compared with the
// reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/integration/communicator/either_memory.h"
#include "tests/integration/communicator/elements.h"
#include "tests/integration/communicator/kept_bytes.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {

class ExampleRun {
 public:
  ExampleRun(const Example& example, const Rank& self)
      : example_(example),
        self_(self),
        sent_(example.shared != example.mixed, example.in_place ? 0 : send_bytes()),
        received_(example.shared,
                  (example.in_place ? std::max(send_bytes(), receive_bytes()) : receive_bytes()) + kGuard) {
    const size_t width = hdtTypeSize(example.type);
    std::memset(received_.data(), std::to_integer<int>(kUntouched), received_.size());
    if (example.in_place && example.operation == Operation::kAllGather) send_at_ = offset(width);
    if (example.in_place && example.operation == Operation::kReduceScatter) receive_at_ = offset(width);
    original_ = contributions(example, self.rank, self.ranks);
    if (!original_.empty()) std::memcpy(send_buffer(), original_.data(), original_.size());
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
    EXPECT_TRUE(sent_.size() == 0 || std::memcmp(sent_.data(), original_.data(), sent_.size()) == 0)
        << e.name() << " changed its sendbuf";
    EXPECT_TRUE(is_untouched(received_.size() - kGuard)) << e.name() << " wrote behind its recvbuf";
    if (e.operation == Operation::kReduce && self_.rank != e.root) {
      EXPECT_TRUE(e.in_place || is_untouched(0)) << e.name() << " wrote to a recvbuf that is not the root's";
      return;
    }
    // Averages round at the end, and once for every hop between nodes.
    const double relative = e.reduces() && e.op == HDT_AVG ? 2 * precision(e.type) : 0;
    const KeptBytes got(receive_bytes());
    if (!got.empty()) std::memcpy(got.data(), received_.data() + receive_at_, got.size());
    const Difference found = compare(e, self_.ranks, self_.rank, {got.data(), got.size()}, relative);
    EXPECT_EQ(found.wrong, 0U) << e.name() << " on rank " << self_.rank << ": first wrong element "
                               << found.first << " is " << found.got << ", not " << found.want;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kUntouched{0xA5};

  // From `first` on each byte is the one before it, by memcmp(), which sanitizers look at once.
  bool is_untouched(size_t first) const {
    const std::byte* bytes = received_.data() + first;
    return *bytes == kUntouched && std::memcmp(bytes, bytes + 1, received_.size() - first - 1) == 0;
  }
  size_t send_bytes() const { return example_.send_count(self_.ranks) * hdtTypeSize(example_.type); }
  size_t receive_bytes() const { return example_.receive_count(self_.ranks) * hdtTypeSize(example_.type); }
  size_t offset(size_t width) const { return static_cast<size_t>(self_.rank) * example_.count * width; }
  std::byte* send_buffer() const { return example_.in_place ? received_.data() + send_at_ : sent_.data(); }

  Example example_;
  Rank self_;
  EitherMemory sent_, received_;
  KeptBytes original_;  // of sendbuf
  size_t send_at_ = 0;
  size_t receive_at_ = 0;
};

}  // namespace hdt::testing
