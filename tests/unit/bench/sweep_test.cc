// sweep_test.cc: a whole run on a group of threads: which rows it prints, and what it concludes.
#include "bench/commbench/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "tests/unit/bench/thread_group.h"

namespace hdt::bench {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::string text;
  std::string json;
  std::atomic<int> right = 0;  // ranks that found all right
};

void sweep(const Options& options, Outcome& run, ThreadGroup::Fault fault = nullptr) {
  ThreadGroup group(4, std::move(fault));
  group.run([&](Communicator& communicator) {
    const Result<SweepResult> result = run_sweep({{EngineKind::kHdt, "double", &communicator}}, 0, options,
                                                 [&run](const std::string& text) { run.text += text; });
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    run.right += result.value().right ? 1 : 0;
    if (communicator.rank() == 0) run.json = result.value().json;
  });
}

Options small() {
  Options options;
  options.collectives = all_collectives();
  options.min_bytes = 8;
  options.max_bytes = 4096;
  options.factor = 8;
  options.iterations = 2;
  options.warm_up = 1;
  return options;
}

TEST(Sweep, RunsEveryCombinationOnce) {
  Options options = small();
  options.types = all_types();
  options.ops = all_ops();
  options.all_roots = true;
  Outcome run;
  sweep(options, run);
  EXPECT_EQ(run.right, 4);
  const auto report = nlohmann::json::parse(run.json);
  // 4 sizes; per type: 8 ops each of allreduce and reduce_scatter, 8 ops * 4 roots of reduce, 4 roots each of
  // broadcast, gather and scatter, allgather, alltoall and sendrecv once; one barrier.
  EXPECT_EQ(report["rows"].size(), 4u * 14 * (8 + 8 + 8 * 4 + 3 * 4 + 3) + 1);
  EXPECT_EQ(report["wrong"], 0);
  EXPECT_THAT(run.text, HasSubstr("# Out of bounds values : 0 OK"));
}

TEST(Sweep, AWrongValueOnOneRankFailsTheRunOnAll) {
  Outcome run;
  sweep(small(), run, [](int rank, const Call& call) {
    if (rank == 3 && call.what == Collective::kAllGather && call.count > 0) {
      static_cast<std::byte*>(call.recv)[0] ^= std::byte{4};
    }
  });
  EXPECT_EQ(run.right, 0);
  EXPECT_THAT(run.text, HasSubstr("FAILED"));
}

}  // namespace
}  // namespace hdt::bench
