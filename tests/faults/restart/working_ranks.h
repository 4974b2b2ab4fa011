// working_ranks.h: the ranks of a group at random operations (work.h), while something is done to their
// daemons.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {

using Ranks = std::vector<std::unique_ptr<RankProcess>>;

inline void sleep_ms(uint64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Flags of nodes whose daemons keep their ports: two that die at once find each other where they were before.
inline std::vector<std::vector<std::string>> with_ports(int nodes,
                                                        const std::vector<std::string>& flags = {}) {
  const std::string port = std::to_string(20'000 + ::getpid() % 10'000);
  std::vector<std::string> all = {"--nics.port", port};
  all.insert(all.end(), flags.begin(), flags.end());
  return {static_cast<size_t>(nodes), all};
}

class Work {
 public:
  // `rounds`: how many, 0: until finish().
  Work(World& world, Ranks& ranks, uint64_t seed, bool in_place, uint64_t rounds = 0)
      : ranks_(ranks), stop_(world.folder().file("stop")) {
    for (auto& rank : ranks_) {
      rank->start("work " + std::to_string(seed) + " " + stop_ + " " + (in_place ? "1 " : "0 ") +
                  std::to_string(rounds));
    }
  }
  // All of them, or one that has failed, are still at it.
  void expect_under_way() { EXPECT_EQ(ranks_[0]->finish(0).result, HDT_IN_PROGRESS); }
  // The ranks' reports, which are the same for all: rounds, and a digest of their floating-point
  // sums.
  std::string finish() {
    std::ofstream(stop_) << "enough";
    std::string done;
    for (auto& rank : ranks_) {
      const Answer answer = rank->finish();
      EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
      if (done.empty()) done = answer.text;
      EXPECT_EQ(answer.text, done);
    }
    return done;
  }

 private:
  Ranks& ranks_;
  std::string stop_;
};

}  // namespace hdt::testing
