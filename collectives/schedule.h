// schedule.h: an algorithm is data. A schedule is, for each node, a lazily generated list of steps over
// element ranges. Three interpreters share it: the executor (executor.h) runs it on links, the checker
// (checker.h) proves it on symbolic values, and the cost model (cost_model.h) times it. So what is
// proven is what is executed.
//
// The unit here is the *node*: the ranks of a node have combined their data in shared memory before. A
// schedule is for one *chunk* of an operation (a "chunk" in identifiers): a part small enough for a slot
// of the node's shared memory. A slot has three areas:
//   kInput    the node's own contribution (reducing collectives); later also partial results. No peer writes
//             it, but this node's own steps may, so it is not intact after the chunk
//   kOutput   the result. For allgather the node's own block is there at the start, for broadcast the root's
//             data
//   kScratch  where contributions land before they are combined: `scratch_length` elements. Each stretch of
//             it takes one payload only
//
// Order within a node: a step may start when every earlier step of the list that conflicts with it
// (hazards.h: overlapping ranges of the same area, at least one of them written) is complete. Otherwise
// steps run in any order. A send of length 0 (barrier) moves nothing that could conflict: it waits for
// every earlier recv. A schedule must also come to its end if each node runs strictly in list order (sends
// never wait for their receiver), so an interpreter may look at any window of the list, however small.
//
// Order between nodes: the k-th send from a to b matches the k-th recv or recv-reduce at b from a,
// counted over the whole schedule ("tag" k). Payload is pushed: it lands in the receiver's memory before
// the receiver's step is reached, even before the receiver has started. So whatever the receiver still
// has to read or write at that place must be complete before the sender can send. A data dependency must
// ensure this, where a send of the receiver counts as complete once its payload has landed at its peer
// (not only once on_sent was reported to the receiver). The checker verifies it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/types.h"

namespace hdt::collectives {

// The areas of a slot; see above. The values stand in the journal (ipc/journal.h), where a successor
// reads them.
enum class Area : uint8_t { kInput = 0, kOutput = 1, kScratch = 2 };

// The kinds of steps. "op" is the operation's ReduceOp.
enum class StepKind : uint8_t {
  kSend,        // from[offset, +length) to `peer`, which places it at to[target, +length)
  kRecv,        // payload of `peer` lands in to[offset, +length), or in kScratch[target, +length)
  kRecvReduce,  // payload of `peer` lands in kScratch[target, +length); then
                //   to[offset..] = from[offset..] op kScratch[target..]; to != from: a step can be run again
  kCopy,        // to[offset, +length) = from[offset, +length), local
  kReduce,  // local: to[offset..] = the contributions of `gathered` + 1 nodes, combined from left to right.
            //   That of this node is from[offset..], the one at `place`; the others have been received
            //   into kScratch, one behind the other from `target` on
};

// One step of one node. Ranges are in elements and relative to the chunk, so a schedule is independent
// of the element type.
struct Step {
  StepKind kind;
  int peer = -1;  // a node; -1 for kCopy and kReduce
  Area from = Area::kInput;
  Area to = Area::kOutput;
  // The range in `from`, and for all but sends in `to` as well, unless `to` is kScratch.
  uint64_t offset = 0;  // elements
  uint64_t length = 0;  // elements; 0 only where a collective moves none (barrier: steps that only signal)
  uint64_t target = 0;  // kSend: offset at the receiver; others: offset in kScratch
  bool peer_first = false;  // kRecvReduce: scratch op from, instead of from op scratch
  int gathered = 0;         // kReduce: contributions in kScratch, of `length` elements each
  int place = 0;            // kReduce: how many of them come before this node's own
  bool operator==(const Step&) const = default;
};

// The task of a chunk's schedule, as one node sees it; all nodes' problems differ in `me` only.
//
// Blocks: node i owns elements [block_offsets[i], block_offsets[i + 1]) of the chunk. For reduce-scatter
// that is the result that ends there, for allgather the data that starts there. Blocks may be unequal or
// empty, as nodes hold different numbers of ranks. For the other collectives any split of the chunk will
// do; it shares the work.
struct Problem {
  Collective what;
  int nodes = 1;
  int me = 0;                           // the node whose steps are wanted
  int root = 0;                         // a node; broadcast and reduce only
  std::vector<uint64_t> block_offsets;  // nodes + 1 values, ascending, [0] == 0
  // Two-level only: the node in each place of its grid, column by column; empty: the nodes in their order.
  // The blocks are those of the places then.
  std::vector<int> places = {};
  // Broadcast and reduce by a chain: the node at its other end than the root, which forwards nothing of
  // others; not the root. -1: a neighbour of the root.
  int far_end = -1;
  uint64_t elements() const { return block_offsets.back(); }
};

// The steps of one node for one chunk. Made by make_schedule(), owned by an interpreter, and not changed
// afterwards, so any thread may read it.
class Schedule {
 public:
  virtual ~Schedule() = default;
  // Step number `index` of this node, or nothing after the last one. The function is pure: it may be
  // called in any order and any number of times. Lists that grow with the number of nodes are thus never
  // held in memory.
  virtual std::optional<Step> step(size_t index) const = 0;
  // Elements of kScratch that the steps of this node use; 0 if none.
  virtual uint64_t scratch_length() const = 0;
};

// All nodes of a call run the same algorithm, so the values travel in control messages. Their names are
// also those of the configuration ([class.NAME] algorithm).
enum class Algorithm : uint8_t {
  kRing,
  kHalvingDoubling,
  kRecursiveDoubling,
  kDoubleBinaryTree,
  kBruck,
  kPairwise,
  kTwoLevel
};
inline constexpr int kAlgorithmCount = 7;
const char* name_of(Algorithm algorithm);  // "ring", "halving_doubling", ...
// The inverse of name_of. Nothing if unknown.
std::optional<Algorithm> parse_algorithm(std::string_view name);

// The schedule of node problem.me. Every algorithm covers every collective, any number of nodes and any
// blocks: an algorithm without a form of its own for the problem makes halving-doubling's schedule.
// `problem` must be valid (check_problem() in checker_plan.h); it comes from a validated descriptor, so
// nothing is checked here. It need not outlive the call.
std::unique_ptr<Schedule> make_schedule(Algorithm algorithm, const Problem& problem);

// False if the algorithm has no form of its own for the problem and makes the schedule of another one.
bool has_own_form(Algorithm algorithm, const Problem& problem);
// The maximum of kScratch elements that any node of the problem needs; problem.me is ignored.
uint64_t scratch_needed(Algorithm algorithm, const Problem& problem);

// The algorithm to run if nothing has been measured: fewest steps for small chunks, fewest bytes per
// link for large ones, among those whose scratch fits into `scratch_limit` elements. One always does,
// because kRing needs at most elements(). Every node must get the same answer, so it depends on these
// arguments only and considers the scratch of all nodes.
Algorithm select_algorithm(const Problem& problem, DataType type, uint64_t scratch_limit);

}  // namespace hdt::collectives
