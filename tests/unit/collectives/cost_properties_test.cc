// cost_properties_test.cc: what must hold of any predicted time, on networks and operations drawn at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

#include "collectives/cost_program.h"
#include "collectives/cost_simulation.h"
#include "tests/unit/collectives/cost_fixture.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kSeed = 20241121;

CostMeasurements random_measurements(std::mt19937_64& random) {
  const auto between = [&](double least, double most) {
    return least * std::pow(most / least, std::uniform_real_distribution<>(0, 1)(random));
  };
  return {{between(1e-6, 1e-4), between(1e8, 1e11)},
          between(1e-7, 1e-5),
          between(1e9, 1e11),
          between(1e9, 1e11),
          {}};
}

Operation random_operation(std::mt19937_64& random) {
  const auto what = static_cast<Collective>(random() % kCollectiveCount);
  const int nodes = 2 + static_cast<int>(random() % 12);
  // One after the other: compilers evaluate arguments in different orders.
  const int in_flight = 1 + static_cast<int>(random() % 4);
  const uint64_t chunks = 1 + random() % 40;
  const uint64_t elements = what == Collective::kBarrier ? 0 : 1 + random() % 100000;
  Operation op = operation(what, nodes, elements, chunks, in_flight);
  op.chunk.root = static_cast<int>(random() % nodes);
  return op;
}

// No port can carry more than its bandwidth, and no result is known before a message has come from everybody.
TEST(CostProperties, NothingIsFasterThanTheNetwork) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const Operation op = random_operation(random);
    const CostMeasurements measurements = random_measurements(random);
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double blocks = op.chunk.what == Collective::kAllReduce ? 2 : 1;
    const auto bytes = static_cast<double>(op.chunk.elements() / op.chunk.nodes * (op.chunk.nodes - 1) * 4);
    const double least =
        std::max(measurements.link.latency_s,
                 blocks * bytes * static_cast<double>(op.chunks) / measurements.link.bandwidth_bytes_s);
    const bool all_receive = op.chunk.what != Collective::kReduce && op.chunk.what != Collective::kBroadcast;
    EXPECT_GE(predict(algorithm, op, measurements), all_receive ? 0.999 * least : measurements.link.latency_s)
        << name_of(algorithm) << " " << name_of(op.chunk.what) << ", round " << round;
  }
}

// Exactly so: no rounding but that to picoseconds. Rarely that decides which of two steps goes first, and so
// changes the whole a little.
TEST(CostProperties, EverythingTwiceAsSlowTakesTwiceAsLong) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  int exact = 0;
  for (int round = 0; round < 200; ++round) {
    const Operation op = random_operation(random);
    const CostMeasurements measurements = random_measurements(random);
    const CostMeasurements slow{{2 * measurements.link.latency_s, measurements.link.bandwidth_bytes_s / 2},
                                2 * measurements.step_overhead_s,
                                measurements.reduce_bytes_s / 2,
                                measurements.copy_bytes_s / 2,
                                {}};
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double once = predict(algorithm, op, measurements);
    const double twice = predict(algorithm, op, slow);
    EXPECT_NEAR(twice, 2 * once, 1e-2 * once) << "round " << round;
    if (std::abs(twice - 2 * once) <= 1e-4 * once) ++exact;
  }
  EXPECT_GE(exact, 198);
}

// A step that comes later may let another one go first, so a slower part can make the whole a little faster
// (Graham 1969); but a little only.
TEST(CostProperties, MoreWorkAndSlowerPartsTakeLonger) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    Operation op = random_operation(random);
    CostMeasurements measurements = random_measurements(random);
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double before = predict(algorithm, op, measurements);
    const uint64_t change = random() % 6;
    if (change == 0) measurements.link.latency_s *= 2;
    if (change == 1) measurements.link.bandwidth_bytes_s /= 2;
    if (change == 2) measurements.step_overhead_s *= 2;
    if (change == 3) measurements.reduce_bytes_s /= 2;
    if (change == 4) op.chunks += 1;
    if (change == 5) {
      for (uint64_t& offset : op.chunk.block_offsets) offset *= 2;
    }
    EXPECT_GE(predict(algorithm, op, measurements), 0.98 * before)
        << name_of(algorithm) << " " << name_of(op.chunk.what) << ", round " << round << ", change "
        << change;
  }
}

TEST(CostProperties, MemoryOfAllAlikeTakesAsLongAsOneRateSaysAndSlowMemoryOfOneNodeLonger) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const Operation op = random_operation(random);
    CostMeasurements measurements = random_measurements(random);
    const auto algorithm = static_cast<Algorithm>(random() % kAlgorithmCount);
    const double before = predict(algorithm, op, measurements);
    measurements.memory.assign(static_cast<size_t>(op.chunk.nodes),
                               {measurements.reduce_bytes_s, measurements.copy_bytes_s});
    ASSERT_EQ(predict(algorithm, op, measurements), before) << "round " << round;
    MemoryMeasurements& slow = measurements.memory[random() % measurements.memory.size()];
    slow = {slow.reduce_bytes_s / 4, slow.copy_bytes_s / 4};
    EXPECT_GE(predict(algorithm, op, measurements), 0.98 * before)
        << name_of(algorithm) << ", round " << round;
  }
}

TEST(CostProperties, LongOperationsTakeAboutWhatTheirChunksTakeSimulated) {
  for (int i = 0; i < kAlgorithmCount; ++i) {
    for (const int nodes : {2, 3, 8, 12, 40}) {
      for (const uint64_t elements : {4096, 65536}) {
        const Operation op = operation(Collective::kAllReduce, nodes, elements, 60, 4);
        const auto program =
            make_cost_program(steps_of_all(static_cast<Algorithm>(i), op.chunk), op, kEthernet);
        const auto ends = simulate(program, 60, 4);
        const double simulated = static_cast<double>(*std::max_element(ends.begin(), ends.end())) * 1e-12;
        EXPECT_NEAR(predict(static_cast<Algorithm>(i), op, kEthernet), simulated, 0.1 * simulated)
            << name_of(static_cast<Algorithm>(i)) << ", " << nodes << " nodes, " << elements << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
