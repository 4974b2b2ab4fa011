// tuner.h: decides which algorithm the daemons of a group run for a call, and says why. Every node
// decides for itself, and all must come to the same answer, because a schedule works only if all nodes
// run it. So the answer depends on nothing but the call, the group's shape, the configured algorithm and
// the measurements (`CostMeasurements`), on all of which the nodes have agreed.
//
// The order of preference:
//
// 1. the configured algorithm, if the call can take it;
// 2. the ring, which is a chain, for a part of a call by counts (Call::part): the parts of all roots are
//    under way at once, and chains load the nodes least;
// 3. the ring for a call in place, but where nodes have unequal links or memory: pairwise could run it, too,
//    but gains nothing between equal ones;
// 4. the algorithm that the cost model predicts to be the fastest, among those that the call can take;
// 5. without measurements, the choice by the size of a chunk (select_algorithm()).
//
// A prediction takes milliseconds. So one is made for each kind of call (`CallKind`) and kept for the
// life of the group. Calls are of one kind if they have the same collective, width of elements and root
// node, and their counts are between the same two powers of two. The prediction is that of the lower
// power.
//
// Owner: ChunkRunner. Thread: the engine's, also for `hdtctl explain`.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/cost_model.h"
#include "collectives/grid_weights.h"
#include "ipc/partition.h"

namespace hdt::daemon {

// Unequal parts must be faster than equal ones by at least this much, so that nodes that are alike, but were
// not measured alike, are used alike. The same holds for other parts while a group runs.
inline constexpr double kLeastGainOfParts = 1.1;

// Why a call cannot take an algorithm. "In place" means that schedules run in user buffers (ipc/partition.h,
// may_be_direct()); nodes do not know whether each other's buffers are, so it concerns every call that
// could be.
enum class Obstacle : uint8_t {
  kNone,
  // between more than two nodes: it keeps partial results in kInput, which is the user's sendbuf in
  // place
  kWritesInput,
  // between two nodes: it may overwrite what it is still sending, if one user buffer is both input and
  // output
  kSendsInput,
  // its steps reach across blocks, which do not adjoin in a user's buffer
  kLeavesBlocks,
  // it needs more scratch than a slot has
  kScratch,
};

// Why the decision is as it is. The values correspond to the order of preference above.
enum class Reason : uint8_t {
  // by [class.NAME] algorithm
  kConfigured,
  // a part of a call by counts
  kPart,
  // of the algorithms that a call in place can take none is faster than the ring
  kInPlace,
  // the fastest by the cost model
  kPredicted,
  // by chunk size: few steps for small chunks, few bytes per link for large ones
  kChunkSize,
};

// The answer of Tuner::decide().
struct Decision {
  collectives::Algorithm algorithm;
  Reason reason;
  // why it is not the configured algorithm; kNone: it is, or none is configured
  Obstacle to_configured = Obstacle::kNone;
};

// Whether the call may run with the algorithm on all nodes; kNone: it may. The answer is the same on all
// nodes, since it uses the problem of node 0. `weights`: as of Tuner::weights_of(). Pure.
Obstacle obstacle_to(collectives::Algorithm algorithm, const ipc::Call& call, const ipc::Layout& layout,
                     const ipc::Order& order, std::span<const uint32_t> weights = {});

class Tuner {
 public:
  // `order` must outlive the tuner; `layout` is copied. Without a `configured` algorithm the tuner is on
  // "auto".
  Tuner(const ipc::Layout& layout, const ipc::Order& order, std::optional<collectives::Algorithm> configured);

  // Sets the measurements that all nodes have agreed on (cost_measurements()). Nothing: some node has not
  // measured something, or the group has more than kMostMeasuredNodes nodes. Called before the first
  // decide(), since predictions are kept.
  void set_measurements(std::optional<collectives::CostMeasurements> measurements);

  // The algorithm of a call, which must be valid (ipc::validate()). May take milliseconds for the
  // first call of its kind.
  Decision decide(const ipc::Call& call);
  // How much of each chunk every node combines, if the call runs the algorithm, by block; empty: equal parts,
  // or blocks that are not for the daemons to choose. Valid until the measurements are set again.
  std::span<const uint32_t> weights_of(const ipc::Call& call, collectives::Algorithm algorithm) const;
  // The parts of calls that may have unequal ones; empty: they have equal ones, too.
  std::span<const uint32_t> weights() const { return weights_; }
  // By node: what its links, its engine and its ranks do in a second, from which the weights are; empty
  // without measurements.
  std::span<const collectives::OwnerRates> rates() const { return rates_; }
  // By node: the rates by which counts are suggested; empty without measurements.
  std::span<const uint64_t> holder_rates() const { return holder_rates_; }
  // Seconds that the call would take by that algorithm with equal parts, from daemon to daemon; 0 without
  // measurements.
  double equal_parts_s(const ipc::Call& call, collectives::Algorithm algorithm) const;
  // The work of node `me` for one chunk of a call that runs the algorithm.
  collectives::Problem problem(const ipc::Call& call, const ipc::Chunk& chunk,
                               collectives::Algorithm algorithm, uint32_t me) const;
  // The algorithm by the size of a chunk, which decides without measurements.
  collectives::Algorithm by_chunk_size(const ipc::Call& call) const;
  // The ranking of all algorithms for the call's kind, the fastest first; empty without measurements.
  // The times are from daemon to daemon. The ranks add a time to them that is the same for every
  // algorithm and differs from node to node (explanation.h adds it).
  const std::vector<collectives::Candidate>& predictions(const ipc::Call& call);
  // The call that predictions() are for: `call` with its count rounded down to a power of two.
  static ipc::Call representative(const ipc::Call& call);
  std::optional<collectives::Algorithm> configured() const { return configured_; }
  const ipc::Layout& layout() const { return layout_; }
  const ipc::Order& order() const { return order_; }

 private:
  // Sets the rates, and what follows from them.
  void set_rates(std::vector<collectives::OwnerRates> rates);
  // What the nodes' links, engines and ranks do.
  std::vector<collectives::OwnerRates> measured_rates() const;
  // The far end of the chain for one chunk of a part (Problem::far_end).
  int far_end_of(const ipc::Call& call, const ipc::Chunk& chunk, int root) const;

  ipc::Layout layout_;
  const ipc::Order& order_;
  std::optional<collectives::Algorithm> configured_;
  std::optional<collectives::CostMeasurements> measurements_;
  // The typical call as the engine would run it.
  collectives::Operation operation_of(const ipc::Call& typical) const;
  std::vector<collectives::OwnerRates> rates_;
  std::vector<uint64_t> holder_rates_;
  // By node, in units of kWeightUnits; empty where equal parts are about as fast.
  std::vector<uint32_t> weights_;
  // The same for two-level, and the places of the nodes.
  collectives::GridWeights grid_;
  // How much of the data of a call by counts each node is best to hold, and for how much of it a node is the
  // far end of a chain (collectives/holder_weights.h). By node, in units of kWeightUnits; empty where equal
  // parts are about as fast.
  std::vector<uint32_t> holders_;
  // collective, bytes of an element, root node, count as of representative()
  using CallKind = std::tuple<collectives::Collective, size_t, uint32_t, uint64_t>;
  std::map<CallKind, std::vector<collectives::Candidate>> predictions_;
};

}  // namespace hdt::daemon
