// schedule.h: an algorithm is data. A schedule is, per node, a lazily generated list of steps over element
// ranges. Three interpreters share it: the executor (executor.h) runs it on links, the checker (checker.h)
// proves it on symbolic values, and the cost model (cost_model.h) times it. What is proven is what is
// executed.
//
// The unit here is the *node* (ranks of a node have combined their data in shared memory before), and one
// *piece* of an operation: a part small enough for a slot of the node's shared memory. A slot has three
// areas:
//   kInput    the node's own contribution (reducing collectives); later also partial results: no peer writes
//             it, but this node's own steps may, so it is not intact after the piece
//   kOutput   the result. allgather: the node's own block is there at the start; broadcast: the root's data
//             is
//   kScratch  where contributions land before they are combined; `scratch_length` elements. Each stretch of
//             it is used for one contribution only
//
// Hazards: a step may start when every earlier step of the list that conflicts with it (hazards.h:
// overlapping ranges of the same area, at least one writes) is complete; otherwise steps run in any order. A
// send of length 0 (barrier) moves nothing that could conflict: it waits for every earlier recv. Steps run
// strictly in list order must come to the end, too (sends never wait for their receiver), so an interpreter
// may look at any window of the list, however small.
//
// The k-th send from a to b matches the k-th recv or recv-reduce at b from a, counted over the whole schedule
// ("tag" k). Payload is pushed: it lands in the receiver's memory before the receiver's step is reached, even
// before the receiver has started. So whatever the receiver still has to read or write at that place must be
// complete before the sender can send: by data dependency, where a send of the receiver counts as complete
// once its payload has landed at its peer (not only once on_sent was reported to the receiver). The checker
// verifies that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/types.h"

namespace hdt::collectives {

enum class Area : uint8_t { kInput = 0, kOutput = 1, kScratch = 2 };

enum class StepKind : uint8_t {
  kSend,        // from[offset, +length) to `peer`, which places it at to[target, +length)
  kRecv,        // payload of `peer` lands in to[offset, +length); to is kOutput (or kInput)
  kRecvReduce,  // payload of `peer` lands in kScratch[target, +length); then
                //   to[offset..] = from[offset..] op kScratch[target..]; to != from: a step can be run again
  kCopy,    // to[offset, +length) = from[offset, +length), local; into kScratch: to kScratch[target, +length)
  kReduce,  // as kRecvReduce, but local, of what a kCopy has put into kScratch[target, +length) before
};

struct Step {
  StepKind kind;
  int peer = -1;  // a node; -1 for kCopy and kReduce
  Area from = Area::kInput;
  Area to = Area::kOutput;
  uint64_t offset = 0;  // elements
  uint64_t length = 0;  // elements; 0 only where a collective moves none (barrier: steps that only signal)
  uint64_t target = 0;  // kSend: offset at the receiver; others: offset in kScratch
  bool peer_first = false;  // kRecvReduce, kReduce: scratch op from, instead of from op scratch
  bool operator==(const Step&) const = default;
};

// What is to be done by a piece. Blocks: node i owns elements [block_offsets[i], block_offsets[i + 1]) of the
// piece: for reduce-scatter what ends there, for allgather what starts there (blocks may be unequal or empty:
// nodes hold different numbers of ranks); for the others any split of the piece, used to share the work.
struct Problem {
  Collective what;
  int nodes = 1;
  int me = 0;
  int root = 0;                         // a node; broadcast and reduce only
  std::vector<uint64_t> block_offsets;  // nodes + 1 values, ascending, [0] == 0
  uint64_t elements() const { return block_offsets.back(); }
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  // Step number `index` of this node, or nothing after the last. Pure: any order, any number of times.
  virtual std::optional<Step> step(size_t index) const = 0;
  // Elements of kScratch that steps of this node use (0 if none).
  virtual uint64_t scratch_length() const = 0;
};

enum class Algorithm : uint8_t {
  kRing,
  kHalvingDoubling,
  kRecursiveDoubling,
  kDoubleBinaryTree,
  kBruck,
  kPairwise
};
inline constexpr int kAlgorithmCount = 6;
const char* name_of(Algorithm algorithm);  // "ring", "halving_doubling", ...
// The inverse of name_of. Nothing if unknown.
std::optional<Algorithm> parse_algorithm(std::string_view name);

// The schedule of node problem.me. Every algorithm covers every collective, any number of nodes and any
// blocks.
std::unique_ptr<Schedule> make_schedule(Algorithm algorithm, const Problem& problem);

// False where the algorithm has no form of its own for the problem and makes the schedule of another one.
bool has_own_form(Algorithm algorithm, const Problem& problem);
// The most elements of kScratch that any node of the problem needs (problem.me is ignored).
uint64_t scratch_needed(Algorithm algorithm, const Problem& problem);

// Which algorithm to run: fewest steps for small pieces, fewest bytes per link for large ones, among those
// whose scratch fits `scratch_limit` elements (one always does: kRing needs at most elements()). Every node
// must get the same answer, so it depends on nothing but these arguments (scratch of all nodes is
// considered).
Algorithm select_algorithm(const Problem& problem, DataType type, uint64_t scratch_limit);

}  // namespace hdt::collectives
