// stress_test.cc: several threads of every rank, each with a communicator of its own, call random operations
// of random sizes, types and memory, several in flight, while groups are made and left. Runs for
// HDT_STRESS_SECONDS (default 5) a shape; HDT_STRESS_SEED repeats a run.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "tests/integration/communicator/example_run.h"

namespace hdt::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937;

uint32_t number_from(const char* variable, uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<uint32_t>(std::stoul(text));
}

std::atomic<uint64_t> operations{0};

// One call: posted, completed, compared.
class Action {
 public:
  virtual ~Action() = default;
  virtual void start(hdtRequest_t* request) = 0;
  virtual void verify() const = 0;
};

class CollectiveAction : public Action {
 public:
  CollectiveAction(const Example& example, const Rank& self) : run_(example, self) {}
  void start(hdtRequest_t* request) override { run_.start(request); }
  void verify() const override { run_.verify(); }

 private:
  ExampleRun run_;
};

// Blocks whose elements say from whom and to whom they go; a block for everyone, or one for the next rank.
class ExchangeAction : public Action {
 public:
  ExchangeAction(bool to_all, size_t count, bool shared, const Rank& self)
      : self_(self),
        to_all_(to_all),
        count_(count),
        blocks_(to_all ? static_cast<size_t>(self.ranks) : 1),
        send_(shared, blocks_ * count * sizeof(int64_t)),
        recv_(shared, blocks_ * count * sizeof(int64_t)) {
    int64_t* element = elements(send_);
    for (size_t block = 0; block < blocks_; ++block) {
      const int to = to_all ? static_cast<int>(block) : next();
      for (size_t i = 0; i < count; ++i) *element++ = value(self.rank, to, i);
    }
    std::fill_n(elements(recv_), blocks_ * count, -1);
  }
  void start(hdtRequest_t* request) override {
    if (to_all_) {
      HDT_EXPECT(hdtAllToAll(send_.data(), recv_.data(), count_, HDT_INT64, self_.comm, request));
    } else {
      HDT_EXPECT(hdtSendRecv(send_.data(), count_, next(), recv_.data(), count_, previous(), HDT_INT64,
                             self_.comm, request));
    }
  }
  void verify() const override {
    for (size_t i = 0; i < blocks_ * count_; ++i) {
      const int from = to_all_ ? static_cast<int>(i / count_) : previous();
      const int64_t got = elements(recv_)[i], want = value(from, self_.rank, i % count_);
      if (got != want) FAIL() << "element " << i << " of an exchange is " << got << ", not " << want;
    }
  }

 private:
  static int64_t* elements(const EitherMemory& memory) { return reinterpret_cast<int64_t*>(memory.data()); }
  static int64_t value(int from, int to, size_t i) {
    return from * 1'000'003LL + to * 10'007LL + static_cast<int64_t>(i);
  }
  int next() const { return (self_.rank + 1) % self_.ranks; }
  int previous() const { return (self_.rank + self_.ranks - 1) % self_.ranks; }

  Rank self_;
  bool to_all_;
  size_t count_;
  size_t blocks_;
  EitherMemory send_, recv_;
};

// The same on every rank, as `random` is. Most are small; a few take many chunks.
std::unique_ptr<Action> random_action(Random& random, const Rank& self) {
  const size_t most = size_t{1} << random() % 18;
  const size_t count = random() % (most + 1);
  const bool shared = random() % 2 == 0;
  const unsigned kind = random() % 7;
  if (kind >= 5) return std::make_unique<ExchangeAction>(kind == 5, count, shared, self);
  const auto type = static_cast<hdtDataType_t>(random() % (HDT_FLOAT8E5M2 + 1));
  constexpr hdtRedOp_t kOps[] = {HDT_SUM, HDT_PROD, HDT_MIN, HDT_MAX, HDT_AVG, HDT_BAND, HDT_BOR, HDT_BXOR};
  const hdtRedOp_t any = kOps[random() % std::size(kOps)];
  const hdtRedOp_t op = can_reduce(type, any) ? any : HDT_SUM;
  const bool in_place = random() % 2 == 0;
  const int root = static_cast<int>(random() % static_cast<unsigned>(self.ranks));
  const Example example{static_cast<Operation>(kind),           type,  op, in_place, count, root,
                        static_cast<unsigned>(random() % 1000), shared};
  return std::make_unique<CollectiveAction>(example, self);
}

// Some calls at once: as requests waited for in an order of each rank's own, between group start and end, or
// one by one.
void round(Random& random, Random& own, const Rank& self) {
  std::vector<std::unique_ptr<Action>> actions;
  for (size_t n = 1 + random() % 6; n > 0; --n) actions.push_back(random_action(random, self));
  const unsigned how = random() % 3;
  std::vector<hdtRequest_t> requests(actions.size(), nullptr);
  if (how == 1) HDT_EXPECT(hdtGroupStart());
  for (size_t i = 0; i < actions.size(); ++i) actions[i]->start(how == 0 ? &requests[i] : nullptr);
  if (how == 1) HDT_EXPECT(hdtGroupEnd());
  std::shuffle(requests.begin(), requests.end(), own);
  for (hdtRequest_t& request : requests) {
    while (own() % 2 == 0 && hdtTest(&request) == HDT_IN_PROGRESS) {
    }
    HDT_EXPECT(hdtWait(&request, -1));
  }
  for (const auto& action : actions) action->verify();
  operations += actions.size();
}

// A group over the even and one over the odd ranks, used once.
void make_a_group(Random& random, Random& own, const Rank& self) {
  Rank part{};
  HDT_EXPECT(hdtCommSplit(self.comm, self.rank % 2, 0, &part.comm, nullptr));
  HDT_EXPECT(hdtCommUserRank(part.comm, &part.rank));
  HDT_EXPECT(hdtCommCount(part.comm, &part.ranks));
  Random copy = random;  // how much is drawn depends on the size of the group
  round(copy, own, part);
  HDT_EXPECT(hdtCommDestroy(part.comm));
}

// Rank 0's clock decides for all: its vote is part of the calls.
void work(const Rank& self, uint32_t seed, Clock::time_point end) {
  Random own(seed + 1 + static_cast<uint32_t>(self.rank));
  for (uint32_t number = 0; !::testing::Test::HasFailure(); ++number) {
    Random random(seed + 1'000 * number);
    round(random, own, self);
    if (number % 20 == 19) make_a_group(random, own, self);
    int32_t over = Clock::now() >= end ? 1 : 0;
    HDT_EXPECT(hdtBroadcast(&over, &over, 1, HDT_INT32, 0, self.comm, nullptr));
    if (over != 0) return;
  }
}

class Stress : public ::testing::TestWithParam<Placement> {};

TEST_P(Stress, ThreadsGroupsAndRandomCalls) {
  constexpr uint32_t kThreads = 3;
  const uint32_t seed = number_from("HDT_STRESS_SEED", std::random_device{}());
  SCOPED_TRACE("HDT_STRESS_SEED=" + std::to_string(seed));
  operations = 0;
  const auto end = Clock::now() + std::chrono::seconds(number_from("HDT_STRESS_SECONDS", 5));
  Nodes::instance().run(GetParam(), [&](Rank& self) {
    std::vector<Rank> communicators(kThreads, self);
    for (Rank& each : communicators) HDT_EXPECT(hdtCommSplit(self.comm, 0, 0, &each.comm, nullptr));
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { work(communicators[i], seed + i * 1'000'000, end); });
    }
    for (std::thread& thread : threads) thread.join();
    for (Rank& each : communicators) HDT_EXPECT(hdtCommDestroy(each.comm));
  });
  std::cout << "seed " << seed << ": " << operations << " operations\n";
  EXPECT_GT(operations.load(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Stress,
                         ::testing::Values(Placement{0, 0, 0}, Placement{0, 1}, Placement{0, 0, 0, 1}),
                         [](const auto& param) { return name_of(param.param); });

}  // namespace
}  // namespace hdt::testing
