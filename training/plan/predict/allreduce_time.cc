// allreduce_time.cc: translates the profile's figures into those of the collectives' cost model, and
// remembers its answers.
//
// Links depend on the kinds of nodes alone. So where a question is about all pairs of nodes, two nodes
// of each kind are looked at: enough for the links between kinds and within a kind.
#include "training/plan/predict/allreduce_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/cost_model.h"
#include "training/plan/describe/node_link.h"

namespace hdt::plan {
namespace {

using collectives::Algorithm;

constexpr int kMostSimulatedNodes = 32;
// Gradients are summed as 32-bit floats.
constexpr uint64_t kElementBytes = 4;
// The rules by which libhdt cuts a call into chunks and chooses the direct ring (ipc/segment.h,
// ipc/partition.cc). They are repeated here, as this layer includes neither.
constexpr int kChunksInFlight = 4;
constexpr uint64_t kSmallestDirectBytes = uint64_t{64} << 10;  // a node
constexpr int kMostDirectNodes = 16;
constexpr uint64_t kScratchChunks = 2;
// Figures of the memo; beyond them it starts anew.
constexpr size_t kMostRemembered = 100'000;

// The link must exist; check_plan() has seen to that.
const Link& link_of(const PredictionInputs& inputs, int from, int to) {
  const auto& nodes = inputs.cluster.nodes;
  return *link_between(inputs.cluster, inputs.profile, nodes[from], nodes[to], false);
}

// How an operation is cut: `count` chunks of `elements` elements each, the last one perhaps smaller.
struct Chunks {
  uint64_t elements = 1;  // of one
  uint64_t count = 1;
};

Chunks chunks_of(const PredictionInputs& inputs, double bytes) {
  const auto all = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(bytes / kElementBytes)));
  const uint64_t most = std::max<uint64_t>(1, inputs.profile.collective.piece_bytes / kElementBytes);
  const uint64_t count = (all + most - 1) / most;
  return {(all + count - 1) / count, count};
}

// The question about one operation.
struct Asked {
  collectives::Collective what = collectives::Collective::kAllReduce;
  // So many operations follow each other, each of its part of the bytes.
  int parts = 1;
  double bytes = 0;  // of all parts
};

Chunks chunks_of(const PredictionInputs& inputs, const Asked& asked) {
  Chunks chunks = chunks_of(inputs, asked.bytes / asked.parts);
  chunks.count *= static_cast<uint64_t>(asked.parts);
  return chunks;
}

// One chunk of an operation, divided into equal blocks, one a node.
collectives::Problem problem_of(collectives::Collective what, int nodes, uint64_t elements) {
  collectives::Problem problem;
  problem.what = what;
  problem.nodes = nodes;
  for (int node = 0; node <= nodes; ++node) problem.block_offsets.push_back(elements * node / nodes);
  return problem;
}

// The algorithm that libhdt would choose. Large operations on 3 to 16 nodes may work in place in the
// users' buffers, and the ring is the algorithm for that. For all others collectives::select_algorithm()
// picks one whose scratch memory fits.
Algorithm algorithm_of(const PredictionInputs& inputs, const collectives::Problem& problem, double bytes) {
  const uint64_t scratch =
      kScratchChunks * static_cast<uint64_t>(inputs.profile.collective.piece_bytes) / kElementBytes;
  const bool direct = problem.what == collectives::Collective::kAllReduce && problem.nodes > 2 &&
                      problem.nodes <= kMostDirectNodes &&
                      bytes >= static_cast<double>(kSmallestDirectBytes * problem.nodes);
  return direct ? Algorithm::kRing : select_algorithm(problem, collectives::DataType::kFloat32, scratch);
}

// The rate of a link is that for all `bytes`, even though chunks are smaller. A small message has a low
// rate because it waits, and the model counts this waiting by the latency of each step.
double simulated(const PredictionInputs& inputs, const std::vector<int>& nodes, const Asked& asked) {
  const CollectiveFigures& given = inputs.profile.collective;
  const double bytes = asked.bytes / asked.parts;  // of one operation
  const Chunks chunks = chunks_of(inputs, asked);
  const collectives::Problem problem =
      problem_of(asked.what, static_cast<int>(nodes.size()), chunks.elements);
  collectives::CostMeasurements figures;
  figures.step_overhead_s = given.step_overhead;
  figures.reduce_bytes_s = given.reduce_rate;
  figures.copy_bytes_s = given.copy_rate;
  figures.link_of = [&](int from, int to) {
    const Link& link = link_of(inputs, nodes[from], nodes[to]);
    return collectives::LinkMeasurements{link.latency, inputs.calibration.allreduce * link.rate(bytes)};
  };
  return collectives::predict(algorithm_of(inputs, problem, bytes),
                              {problem, collectives::DataType::kFloat32, chunks.count, kChunksInFlight},
                              figures);
}

// Up to two nodes of each kind, which stand for all nodes (see above).
std::vector<int> kinds_among(const PredictionInputs& inputs, const std::vector<int>& nodes) {
  std::vector<int> kinds;
  std::map<std::string, int> seen;
  for (const int node : nodes) {
    if (++seen[inputs.cluster.nodes[node].kind()] <= 2) kinds.push_back(node);
  }
  return kinds;
}

template <typename Use>
void for_each_link(const PredictionInputs& inputs, const std::vector<int>& nodes, Use use) {
  const std::vector<int> kinds = kinds_among(inputs, nodes);
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (size_t j = 0; j < kinds.size(); ++j) {
      if (i != j) use(link_of(inputs, kinds[i], kinds[j]));
    }
  }
}

// 2 (n - 1) steps of a ring or 2 log2(n) of a recursive algorithm, and 2 (n - 1) / n of the bytes over the
// slowest link: what any allreduce that is optimal in bandwidth sends (Patarasuk and Yuan, 2009). A reduction
// to one node, or a broadcast from one, has half of the steps, and sends each byte once over each link.
double closed_form(const PredictionInputs& inputs, const std::vector<int>& nodes, const Asked& asked) {
  const auto count = static_cast<double>(nodes.size());
  const double bytes = asked.bytes / asked.parts;  // of one operation
  const Chunks chunks = chunks_of(inputs, asked);
  double latency = 0;
  double rate = std::numeric_limits<double>::infinity();
  for_each_link(inputs, nodes, [&](const Link& link) {
    latency = std::max(latency, link.latency);
    rate = std::min(rate, inputs.calibration.allreduce * link.rate(bytes));
  });
  const bool ring =
      algorithm_of(inputs, problem_of(asked.what, static_cast<int>(nodes.size()), chunks.elements), bytes) ==
      Algorithm::kRing;
  if (asked.what != collectives::Collective::kAllReduce) {
    const double steps = ring ? count - 1 : std::ceil(std::log2(count));
    return steps * (latency + inputs.profile.collective.step_overhead) + asked.bytes / rate;
  }
  const double steps = ring ? 2 * (count - 1) : 2 * std::ceil(std::log2(count));
  return steps * (latency + inputs.profile.collective.step_overhead) + 2 * (count - 1) / count * bytes / rate;
}

// Answers by everything that they depend on, shared by all threads. The lock is not held while an answer
// is computed: two threads may compute the same one, which costs time and nothing else.
class Memo {
 public:
  using Key = std::vector<double>;

  template <typename Compute>
  double find(Key key, Compute compute) {
    {
      const std::scoped_lock lock(mutex_);
      const auto found = known_.find(key);
      if (found != known_.end()) return found->second;
    }
    const double value = compute();
    const std::scoped_lock lock(mutex_);
    if (known_.size() >= kMostRemembered) known_.clear();
    known_.emplace(std::move(key), value);
    return value;
  }

 private:
  std::mutex mutex_;
  std::map<Key, double> known_;
};

// Everything that the answer depends on. The nodes enter as numbers of their kinds in the order of their
// first node, and the links as their figures, so equal questions about different nodes, or in different
// profiles, have one key.
Memo::Key key_of(const PredictionInputs& inputs, const std::vector<int>& nodes, const Asked& asked) {
  const CollectiveFigures& figures = inputs.profile.collective;
  const double bytes = asked.bytes / asked.parts;
  Memo::Key key = {asked.bytes,
                   static_cast<double>(asked.what),
                   static_cast<double>(asked.parts),
                   inputs.calibration.allreduce,
                   figures.step_overhead,
                   figures.reduce_rate,
                   figures.copy_rate,
                   static_cast<double>(figures.piece_bytes)};
  std::map<std::string, double> numbers;
  for (const int node : nodes)
    key.push_back(numbers.emplace(inputs.cluster.nodes[node].kind(), numbers.size()).first->second);
  for_each_link(inputs, nodes, [&](const Link& link) {
    key.push_back(link.latency);
    key.push_back(link.rate(bytes));
  });
  return key;
}

double seconds_of(const PredictionInputs& inputs, const std::vector<int>& nodes, const Asked& asked) {
  if (nodes.size() > kMostSimulatedNodes) return closed_form(inputs, nodes, asked);
  // Lives as long as the process, since a search makes many short-lived predictors.
  static Memo memo;
  return memo.find(key_of(inputs, nodes, asked), [&] { return simulated(inputs, nodes, asked); });
}

}  // namespace

double allreduce_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, double bytes) {
  return seconds_of(inputs, nodes, {collectives::Collective::kAllReduce, 1, bytes});
}

double reduce_scatter_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, int owners,
                              double bytes) {
  return seconds_of(inputs, nodes, {collectives::Collective::kReduce, owners, bytes});
}

double all_gather_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, int owners,
                          double bytes) {
  return seconds_of(inputs, nodes, {collectives::Collective::kBroadcast, owners, bytes});
}

bool allreduce_measured(const PredictionInputs& inputs, const std::vector<int>& nodes) {
  bool all = true;
  for_each_link(inputs, nodes, [&](const Link& link) { all = all && !link.allreduce.empty(); });
  return all;
}

double small_sum_seconds(const PredictionInputs& inputs, const std::vector<int>& nodes, bool shared_nodes) {
  double latency = 0;
  for_each_link(inputs, nodes, [&](const Link& link) { latency = std::max(latency, link.latency); });
  const double between = std::ceil(std::log2(static_cast<double>(nodes.size()))) *
                         (latency + inputs.profile.collective.step_overhead);
  double inside = 0;
  for (const int node : kinds_among(inputs, nodes)) {
    const std::string& device = inputs.cluster.nodes[node].device;
    const Link* link = inputs.profile.find_link(device, device, true);
    if (shared_nodes && link) inside = std::max(inside, 2 * link->latency);
  }
  return between + inside;
}

}  // namespace hdt::plan
