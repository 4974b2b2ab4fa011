// checker_plan.h: all nodes' steps in one numbering, and the order that messages and hazards force on
// them. Internal to the checker. Its stages fill it one after the other; each returns "" or what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/checker.h"

namespace hdt::collectives {

// The schedules of all nodes as one graph. A step waits for the steps in `before` and, if it receives,
// for its matching send.
struct Plan {
  const Problem& problem;
  const std::vector<StepList>& lists;

  // Steps of all nodes are numbered through, node by node.
  std::vector<uint32_t> first_of_node;        // nodes + 1 values
  std::vector<int> node_of;                   // by step number
  std::vector<uint32_t> match;                // of a send its recv, of a recv its send (match_messages)
  std::vector<std::vector<uint32_t>> before;  // earlier conflicting steps of the same node (order_steps)
  std::vector<std::vector<uint32_t>> after;   // the inverse
  // A topological order: every step comes after those in `before`, and after its match if it receives.
  std::vector<uint32_t> order;

  Plan(const Problem& problem, const std::vector<StepList>& lists);
  size_t size() const { return node_of.size(); }
  const Step& step(uint32_t number) const {
    return lists[node_of[number]].steps[number - first_of_node[node_of[number]]];
  }
  // "node 2, step 5 (recv_reduce from 1: input to output [4, +2), scratch 4)"
  std::string describe(uint32_t number) const;
};

// The stages, in the order in which check() runs them. In checker_structure.cc: block_offsets and root
// of the problem, and one list for each node.
std::string check_problem(const Problem& problem, size_t lists);
// Each step by itself: ranges, areas, and that every stretch of scratch is filled once.
std::string check_ranges(const Plan& plan, uint64_t scratch_limit);
// Pairs the k-th send from a to b with the k-th receive at b from a, and compares length and place.
std::string match_messages(Plan& plan);

// In checker_order.cc: fills before, after and order. A deadlock is an error.
std::string order_steps(Plan& plan);
// No payload lands on a range that its receiver still uses, under any timing.
std::string check_landings(const Plan& plan);
// No node passes before all have started.
std::string check_barrier(const Plan& plan);

// When payloads land in a run: as soon as they are sent, as late as possible, or at random.
enum class Landing : uint8_t { kEarliest, kLatest, kRandom };
// In checker_values.cc: runs the plan on symbolic values and compares what comes out with what the
// collective promises.
std::string check_values(const Plan& plan, Landing landing, uint64_t seed);

// True if the collective has `element` in kOutput of `node` before the start.
bool starts_in_output(const Problem& problem, int node, uint64_t element);

}  // namespace hdt::collectives
