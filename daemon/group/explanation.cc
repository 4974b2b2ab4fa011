#include "daemon/group/explanation.h"

#include <algorithm>

namespace hdt::daemon {

using collectives::Algorithm;
using ipc::Call;
using ipc::Partition;

namespace {

// One round trip of the echo is one turn between a rank and its daemon: the rank is heard, and hears the
// answer. A call takes two turns, because rank and daemon also take turns while the daemon waits for
// other nodes. Measured: 12 to 17 us a turn, where calls take 25 to 29 us beside the steps between
// nodes.
constexpr double kTurnsOfACall = 2;
// Used if no rank has measured its round trip.
constexpr uint64_t kAssumedEchoNs = 4'500;
// The limit for a foreign number: 0.1 s.
constexpr uint64_t kLongestEchoNs = 100'000'000;

// Why the call cannot take the algorithm; "" for kNone.
std::string words(Obstacle obstacle, Algorithm algorithm, const Call& call, const Tuner& tuner) {
  switch (obstacle) {
    case Obstacle::kNone:
      break;
    case Obstacle::kWritesInput:
      return "it keeps partial results where ranks may have the sendbuf of a call in place";
    case Obstacle::kSendsInput:
      return "it sends what it overwrites where ranks may have one buffer for both, in place";
    case Obstacle::kLeavesBlocks:
      return "its steps reach across the blocks of buffers that ranks may use in place";
    case Obstacle::kScratch: {
      const Partition plan(call, tuner.layout());
      const uint64_t width = collectives::type_size(call.type);
      return "it needs " +
             std::to_string(width *
                            scratch_needed(algorithm, tuner.problem(call, plan.chunk(0), algorithm, 0))) +
             " bytes of scratch, a slot has " + std::to_string(tuner.layout().scratch_bytes);
    }
  }
  return {};
}

// Why the decision was made.
std::string words(Reason reason) {
  switch (reason) {
    case Reason::kConfigured:
      return "it is configured";
    case Reason::kPart:
      return "it is a part of a call by counts";
    case Reason::kInPlace:
      return "none is faster for buffers that ranks may use in place";
    case Reason::kPredicted:
      return "it is the fastest by the cost model";
    case Reason::kChunkSize:
      break;
  }
  return "by the size of a chunk: few steps for small ones, few bytes per link for large ones";
}

}  // namespace

// The slowest rank counts, as a call waits for all. The ranks' measurements are foreign, hence the limit.
double hand_over_seconds(const std::vector<uint64_t>& echoes_ns) {
  const uint64_t slowest = echoes_ns.empty() ? 0 : *std::max_element(echoes_ns.begin(), echoes_ns.end());
  const uint64_t echo_ns = slowest == 0 ? kAssumedEchoNs : std::min(slowest, kLongestEchoNs);
  return kTurnsOfACall * static_cast<double>(echo_ns) * 1e-9;
}

// Asks the tuner the same question as a call would.
Explanation explain(Tuner& tuner, const Call& call, const std::string& group_class, double hand_over_s) {
  Explanation all{tuner.decide(call), "", hand_over_s, {}, {}, {}};
  const std::span<const uint32_t> weights = tuner.weights_of(call, all.decision.algorithm);
  if (!weights.empty()) {
    const Partition plan(call, tuner.layout());
    const std::vector<int> places = tuner.problem(call, plan.chunk(0), all.decision.algorithm, 0).places;
    all.weights.resize(weights.size());
    for (size_t block = 0; block < weights.size(); ++block)
      all.weights[places.empty() ? block : static_cast<size_t>(places[block])] = weights[block];
    all.rates.assign(tuner.rates().begin(), tuner.rates().end());
    const auto slowest = std::ranges::min_element(all.rates, {}, collectives::pace_of);
    all.slowest_node = static_cast<size_t>(slowest - all.rates.begin());
    all.waits_for_memory = collectives::pace_of(*slowest) < slowest->link;
    all.equal_parts_s = tuner.equal_parts_s(call, all.decision.algorithm) + hand_over_s;
  }
  // 1. Why it was picked, and what kept the configured algorithm from it.
  if (tuner.configured()) {
    all.why = "class " + group_class + " has algorithm \"" + name_of(*tuner.configured()) + "\"";
    const std::string obstacle = words(all.decision.to_configured, *tuner.configured(), call, tuner);
    if (!obstacle.empty())
      all.why += ", but this call cannot take it: " + obstacle + "; so " + name_of(all.decision.algorithm) +
                 ": " + words(all.decision.reason);
  } else {
    all.why = words(all.decision.reason);
  }
  // 2. The place of every algorithm. Reasons for leaving one out come in this order: it takes the same
  //    steps as halving-doubling, the call cannot take it, the ranking has left it out.
  const auto problem = problem_of(call, Partition(call, tuner.layout()).chunk(0), tuner.order(), 0);
  for (int i = 0; i < collectives::kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    collectives::Candidate candidate{algorithm, 0, ""};
    if (!has_own_form(algorithm, problem)) {
      candidate.left_out = "it has no form of its own here: its steps are halving_doubling's";
    } else {
      candidate.left_out = words(
          obstacle_to(algorithm, call, tuner.layout(), tuner.order(), tuner.weights_of(call, algorithm)),
          algorithm, call, tuner);
      if (candidate.left_out.empty() && all.decision.reason == Reason::kInPlace &&
          algorithm != all.decision.algorithm)
        candidate.left_out = "it gains nothing here over a ring, for buffers that ranks may use in place";
    }
    for (const auto& predicted : tuner.predictions(call)) {
      if (predicted.algorithm != algorithm) continue;
      // The ranking counts from daemon to daemon.
      candidate.seconds = predicted.seconds > 0 ? predicted.seconds + hand_over_s : 0;
      if (candidate.left_out.empty()) candidate.left_out = predicted.left_out;
    }
    all.candidates.push_back(std::move(candidate));
  }
  std::stable_sort(all.candidates.begin(), all.candidates.end(), [](const auto& a, const auto& b) {
    return a.left_out.empty() != b.left_out.empty() ? a.left_out.empty() : a.seconds < b.seconds;
  });
  return all;
}

}  // namespace hdt::daemon
