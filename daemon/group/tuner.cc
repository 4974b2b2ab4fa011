// The conditions under which an algorithm may run, and the choice among those that may.
// docs/design/collectives.md (Selection, Tuner) has the reasons for the limits.
#include "daemon/group/tuner.h"

#include <algorithm>
#include <bit>

#include "collectives/holder_weights.h"
#include "ipc/buffer_use.h"

namespace hdt::daemon {

namespace {

uint64_t bounded(double rate) {
  return static_cast<uint64_t>(std::clamp(rate, 0.0, static_cast<double>(collectives::kHighestWeightedRate)));
}

// The rate of a node's links in bytes a second: that of the fastest one, in the slower direction. The cost
// model takes the fastest link for the node's port, too.
uint64_t port_rate(const collectives::CostMeasurements& measurements, uint32_t nodes, uint32_t node) {
  uint64_t out = 0;
  uint64_t in = 0;
  for (uint32_t peer = 0; peer < nodes; ++peer) {
    if (peer == node) continue;
    const auto to = [&](uint32_t from, uint32_t at) {
      return bounded(measurements.link_of(static_cast<int>(from), static_cast<int>(at)).bandwidth_bytes_s);
    };
    out = std::max(out, to(node, peer));
    in = std::max(in, to(peer, node));
  }
  return std::min(out, in);
}

// The bytes of a call in a second that the ranks of a node copy in, combine among themselves and copy out.
// Each rank copies all of its own, combines its share, and does so on its own thread; memory is taken to be
// as fast for all at once as for one. 0, no limit: a node of one rank combines nothing, and its buffers may
// be in place.
uint64_t local_rate(const collectives::MemoryMeasurements& memory, uint64_t ranks) {
  if (ranks < 2) return 0;
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  const double seconds = 2 / memory.copy_bytes_s + share / memory.reduce_bytes_s;
  return std::max<uint64_t>(bounded(1 / seconds), 1);
}

}  // namespace

using collectives::Algorithm;
using collectives::OwnerRates;
using ipc::by_blocks;
using ipc::Call;
using ipc::Layout;
using ipc::Order;
using ipc::Partition;

// All nodes must come to the same answer, since it decides about the algorithm. Whether a rank really uses
// its buffers in place is not known to other nodes, so the question is only whether it may.
Obstacle obstacle_to(Algorithm algorithm, const Call& call, const Layout& layout, const Order& order,
                     std::span<const uint32_t> weights) {
  // The ring can take every call, also in place: its steps stay within a block, and it reads no element
  // of kInput after that element was written as kOutput. Its scratch is no longer than a chunk, which a
  // slot has.
  if (algorithm == Algorithm::kRing) return Obstacle::kNone;
  const Partition plan(call, layout);
  const auto problem = problem_of(call, plan.chunk(0), order, 0, weights);
  // Direct exchange keeps no partial results in kInput, and its steps are those of whole blocks.
  const bool direct = algorithm == Algorithm::kPairwise || algorithm == Algorithm::kTwoLevel;
  const bool keeps_input = direct && has_own_form(algorithm, problem);
  if (may_be_direct(call, layout) && !keeps_input) {
    // Other schedules than the ring keep partial results in kInput between more than two nodes.
    if (layout.nodes > 2) return Obstacle::kWritesInput;
    // If the call has several chunks, each has a part of every block, and the parts do not adjoin there.
    if (by_blocks(call.what) && plan.chunks() > 1) return Obstacle::kLeavesBlocks;
    // Between two nodes only recursive doubling sends what it combines: the other algorithms send one
    // half of the elements and combine the other half.
    if (algorithm == Algorithm::kRecursiveDoubling && has_own_form(algorithm, problem))
      return Obstacle::kSendsInput;
  }
  const uint64_t scratch_limit = layout.scratch_bytes / collectives::type_size(call.type);
  return scratch_needed(algorithm, problem) > scratch_limit ? Obstacle::kScratch : Obstacle::kNone;
}

Tuner::Tuner(const Layout& layout, const Order& order, std::optional<Algorithm> configured)
    : layout_(layout), order_(order), configured_(configured) {}

void Tuner::set_measurements(std::optional<collectives::CostMeasurements> measurements) {
  measurements_ = std::move(measurements);
  predictions_.clear();
  const bool usable = measurements_ && layout_.nodes <= collectives::kMostWeightedNodes;
  set_rates(usable ? measured_rates() : std::vector<OwnerRates>());
}

std::vector<OwnerRates> Tuner::measured_rates() const {
  std::vector<OwnerRates> rates;
  for (uint32_t node = 0; node < layout_.nodes; ++node) {
    const auto& memory = measurements_->memory[node];
    const uint64_t ranks = order_.first_position[node + 1] - order_.first_position[node];
    // An engine that was measured combines something.
    rates.push_back({.link = port_rate(*measurements_, layout_.nodes, node),
                     .combine = std::max<uint64_t>(bounded(memory.reduce_bytes_s), 1),
                     .local = local_rate(memory, ranks)});
  }
  return rates;
}

void Tuner::set_rates(std::vector<OwnerRates> rates) {
  rates_ = std::move(rates);
  holder_rates_.clear();
  weights_.clear();
  holders_.clear();
  grid_ = {};
  if (rates_.size() < 2) return;
  weights_ = collectives::owner_weights(rates_);
  if (collectives::gain_of(weights_, rates_) < kLeastGainOfParts) weights_.clear();
  holder_rates_ = collectives::holder_rates(rates_);
  if (rates_.size() < 3) return;  // both ends of a chain of two nodes are given
  holders_ = collectives::holder_weights(holder_rates_);
  const std::vector<uint32_t> equal(rates_.size(), 1);
  if (!collectives::holders_gain(holders_, equal, holder_rates_)) holders_.clear();
  if (collectives::grid_of(static_cast<int>(rates_.size())).rows == 1) return;
  grid_ = collectives::grid_weights(rates_);
  const double gain =
      collectives::grid_seconds_of_a_byte({}, rates_) / collectives::grid_seconds_of_a_byte(grid_, rates_);
  if (gain < kLeastGainOfParts) grid_ = {};
}

// The chunks of a part are spread over the root's block by their places in the part, and the parts by steps
// of the golden ratio. So a few chunks are the far ends' about as often as all of them, and the same chunk of
// the same call always has the same one. Each operation on the numbers is rounded once, so all nodes get the
// same.
int Tuner::far_end_of(const Call& call, const ipc::Chunk& chunk, int root) const {
  constexpr uint64_t kGoldenStep = 40'503;  // of kWeightUnits
  const double middle = static_cast<double>(chunk.offset) + static_cast<double>(chunk.elements) / 2;
  const auto within = static_cast<uint64_t>(middle / static_cast<double>(std::max<uint64_t>(call.count, 1)) *
                                            collectives::kWeightUnits);
  const uint64_t place = (within + ipc::part_number(call.part) * kGoldenStep) % collectives::kWeightUnits;
  return collectives::far_end_of(holders_, root, static_cast<uint32_t>(place));
}

collectives::Problem Tuner::problem(const Call& call, const ipc::Chunk& chunk, Algorithm algorithm,
                                    uint32_t me) const {
  collectives::Problem problem = problem_of(call, chunk, order_, me, weights_of(call, algorithm));
  if (algorithm == Algorithm::kTwoLevel && call.what == collectives::Collective::kAllReduce)
    problem.places = grid_.places;
  if (call.part != 0 && algorithm == Algorithm::kRing && !holders_.empty()) {
    problem.far_end = far_end_of(call, chunk, problem.root);
  }
  return problem;
}

std::span<const uint32_t> Tuner::weights_of(const Call& call, Algorithm algorithm) const {
  if (call.what != collectives::Collective::kAllReduce) return {};
  if (algorithm == Algorithm::kTwoLevel) return grid_.weights;
  return algorithm == Algorithm::kPairwise ? weights_ : std::span<const uint32_t>();
}

// The lower power of two, so that a prediction needs no more chunks or scratch than any call of its kind
// has.
Call Tuner::representative(const Call& call) {
  Call smallest = call;
  smallest.count = std::bit_floor(call.count);
  return smallest;
}

// Chunks of equal size, as many in flight as there are slots.
collectives::Operation Tuner::operation_of(const Call& typical) const {
  const Partition plan(typical, layout_);
  collectives::Operation operation;
  operation.chunk = problem_of(typical, plan.chunk(0), order_, 0);
  operation.pairwise_offsets = problem(typical, plan.chunk(0), Algorithm::kPairwise, 0).block_offsets;
  const auto in_grid = problem(typical, plan.chunk(0), Algorithm::kTwoLevel, 0);
  operation.two_level_offsets = in_grid.block_offsets;
  operation.two_level_places = in_grid.places;
  operation.type = typical.type;
  operation.chunks = plan.chunks();
  operation.chunks_in_flight = layout_.slots;
  operation.tells_outputs = may_be_direct(typical, layout_);
  return operation;
}

double Tuner::equal_parts_s(const Call& call, Algorithm algorithm) const {
  if (!measurements_) return 0;
  collectives::Operation operation = operation_of(representative(call));
  operation.pairwise_offsets.clear();
  operation.two_level_offsets.clear();
  return collectives::predict(algorithm, operation, *measurements_);
}

// Kept by the kind of call, since ranking all algorithms takes longer than a small call. The number of
// kinds is small: counts are rounded to powers of two. Empty without measurements.
const std::vector<collectives::Candidate>& Tuner::predictions(const Call& call) {
  static const std::vector<collectives::Candidate> kNone;
  if (!measurements_) return kNone;
  const Call typical = representative(call);
  const collectives::Operation operation = operation_of(typical);
  const size_t width = collectives::type_size(typical.type);
  const CallKind key{typical.what, width, static_cast<uint32_t>(operation.chunk.root), typical.count};
  const auto known = predictions_.find(key);
  if (known != predictions_.end()) return known->second;
  return predictions_.emplace(key, rank_algorithms(operation, layout_.scratch_bytes / width, *measurements_))
      .first->second;
}

// The same on all nodes, which is what makes their schedules fit together: it uses nothing but what all
// have agreed on.
Decision Tuner::decide(const Call& call) {
  // 1. Take the configured algorithm.
  Obstacle to_configured = Obstacle::kNone;
  if (configured_) {
    to_configured = obstacle_to(*configured_, call, layout_, order_, weights_of(call, *configured_));
    if (to_configured == Obstacle::kNone) return {*configured_, Reason::kConfigured};
  }
  // 2. The parts of calls by counts.
  if (call.part != 0) return {Algorithm::kRing, Reason::kPart, to_configured};
  // 3. The calls in place that only the ring and pairwise can run: between more than two nodes, or in blocks
  //    and several chunks. Pairwise gains where its parts are unequal.
  const Partition plan(call, layout_);
  const bool in_blocks = by_blocks(call.what) && plan.chunks() > 1;
  if (may_be_direct(call, layout_) && (layout_.nodes > 2 || in_blocks) &&
      weights_of(call, Algorithm::kPairwise).empty()) {
    return {Algorithm::kRing, Reason::kInPlace, to_configured};
  }
  // 4. The fastest that the call can take. The ranking is that of the call's kind, whose count is lower,
  //    so the obstacles are asked of this very call. Nothing to go through if there are no measurements.
  for (const auto& candidate : predictions(call)) {
    if (candidate.left_out.empty() && obstacle_to(candidate.algorithm, call, layout_, order_,
                                                  weights_of(call, candidate.algorithm)) == Obstacle::kNone) {
      return {candidate.algorithm, Reason::kPredicted, to_configured};
    }
  }
  // 5. By the size of a chunk.
  return {by_chunk_size(call), Reason::kChunkSize, to_configured};
}

Algorithm Tuner::by_chunk_size(const Call& call) const {
  const Partition plan(call, layout_);
  return select_algorithm(problem_of(call, plan.chunk(0), order_, 0), call.type,
                          layout_.scratch_bytes / collectives::type_size(call.type));
}

}  // namespace hdt::daemon
