// search_orders_test.cc: search of small clusters against enumeration of all orders of devices and of
// replicas, all nodes for each stage, all splits, and a micro-batch size for each replica.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <set>

#include "tests/training/plan/random_case.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

// Plays every plan of one chunk a stage without tensor parallelism.
class AllPlans {
 public:
  AllPlans(const PredictionInputs& inputs, const SearchOptions& options)
      : inputs_(inputs), recompute_(options.recompute) {
    for (const Node& node : inputs.cluster.nodes) free_.push_back(node.devices);
    for (const ScheduleKind schedule : options.schedules) {
      plan_.runtime = options.runtime;
      plan_.runtime.schedule = schedule;
      for (const bool sharded : {false, true}) {
        if (sharded && !options.shard_optimizer) continue;
        plan_.runtime.use_distributed_optimizer = sharded;
        add_replica(static_cast<int>(options.global_batch_size));
      }
    }
  }
  double best() const { return best_; }
  int64_t played() const { return played_; }

 private:
  // Every next replica has a size, a number of micro-batches, and then stages. Replicas come in every order,
  // as rings of reductions go through them in that order.
  void add_replica(int samples) {
    if (samples == 0) {
      play();
      return;
    }
    for (const int size : {1, 2}) {
      for (int count = 1; count * size <= samples; ++count) {
        plan_.replicas.push_back({size, count, {}});
        add_stage(samples - count * size, inputs_.model.num_layers());
        plan_.replicas.pop_back();
      }
    }
  }

  void add_stage(int samples, int layers) {
    if (layers == 0) return add_replica(samples);
    for (size_t node = 0; node < free_.size(); ++node) {
      if (free_[node] == 0) continue;
      --free_[node];
      for (int here = 1; here <= layers; ++here) {
        plan_.replicas.back().stages.push_back({here, inputs_.cluster.nodes[node].name, 1});
        add_stage(samples, layers - here);
        plan_.replicas.back().stages.pop_back();
      }
      ++free_[node];
    }
  }

  void play() {
    ++played_;
    best_ = std::min(best_, fitted_seconds(inputs_, plan_, recompute_));
  }

  const PredictionInputs& inputs_;
  const RecomputeChoice recompute_;
  std::vector<int> free_;  // by node
  Plan plan_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t played_ = 0;
};

// HDT_TEST_ORDER_CASES asks for another number of cases than the suite has.
int order_cases() {
  const char* const given = std::getenv("HDT_TEST_ORDER_CASES");
  return given ? std::atoi(given) : HDT_ORDER_CASES;
}

TEST(SearchOrders, NothingIsFasterThanWhatIsProvedToBeTheBest) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  int64_t enumerated = 0;
  int64_t played = 0;
  int fitting = 0;
  int other_sizes = 0;
  double worst = 1;
  double sum = 0;
  // A cluster without memory for any plan, and for which the search must find none, is one case more.
  const int draws = 20 * order_cases();
  for (int round = 0; fitting < order_cases() && round < draws; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", case " << round);
    RandomCase made(random, false, 4);
    made.options.global_batch_size = std::min<int64_t>(made.options.global_batch_size, 5);
    if (round % 2 == 1) made.options.runtime.reduction = ReductionKind::kHdt;
    while (made.model.num_layers() > 4) --made.model.layers[1].count;
    const PredictionInputs inputs{made.cluster, made.model, made.profile, {}};
    const AllPlans all(inputs, made.options);
    const auto found = search(inputs, made.options);
    enumerated += all.played();
    if (all.best() == std::numeric_limits<double>::infinity()) {
      EXPECT_FALSE(found.is_ok());
      continue;
    }
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    ++fitting;
    played += found.value().predictions;
    const double ratio = found.value().step_seconds / all.best();
    worst = std::max(worst, ratio);
    sum += ratio - 1;
    EXPECT_NEAR(ratio, 1, 1e-9);
    EXPECT_EQ(found.value().proof, SearchProof::kBest);
    std::set<int> sizes;
    for (const Replica& replica : found.value().plan.replicas) sizes.insert(replica.micro_batch_size);
    other_sizes += sizes.size() > 1;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(fitting, order_cases()) << "of " << draws << " clusters with seed " << seed;
  std::cout << fitting << " cases with a plan; worst " << 100 * (worst - 1) << " % slower, mean "
            << 100 * sum / fitting << " %; " << other_sizes << " with several micro-batch sizes; " << played
            << " plans played of " << enumerated << "\n";
}

}  // namespace
}  // namespace hdt::plan
