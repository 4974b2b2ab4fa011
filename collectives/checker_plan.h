// checker_plan.h: all nodes' steps in one numbering, and the order that messages and hazards force on them.
// Internal to the checker; built by its stages, each of which returns "" or what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/checker.h"

namespace hdt::collectives {

struct Plan {
  const Problem& problem;
  const std::vector<StepList>& lists;

  // Steps of all nodes are numbered through, node by node.
  std::vector<uint32_t> first_of_node;        // nodes + 1 values
  std::vector<int> node_of;                   // by step number
  std::vector<uint32_t> match;                // of a send its recv, of a recv its send
  std::vector<std::vector<uint32_t>> before;  // earlier conflicting steps of the same node
  std::vector<std::vector<uint32_t>> after;   // the inverse
  std::vector<uint32_t> order;  // every step after those in `before` and its match if it receives

  Plan(const Problem& problem, const std::vector<StepList>& lists);
  size_t size() const { return node_of.size(); }
  const Step& step(uint32_t number) const {
    return lists[node_of[number]].steps[number - first_of_node[node_of[number]]];
  }
  // "node 2, step 5 (recv_reduce from 1: input to output [4, +2), scratch 4)"
  std::string describe(uint32_t number) const;
};

// checker_structure.cc: each step by itself, and sends against recvs.
std::string check_problem(const Problem& problem, size_t lists);
std::string check_ranges(const Plan& plan, uint64_t scratch_limit);
std::string match_messages(Plan& plan);

// checker_order.cc: fills before, after and order; then what may land too early, and barriers.
std::string order_steps(Plan& plan);
std::string check_landings(const Plan& plan);
std::string check_barrier(const Plan& plan);

// checker_values.cc: runs the plan on symbolic values and compares what comes out.
enum class Landing : uint8_t { kEarliest, kLatest, kRandom };
std::string check_values(const Plan& plan, Landing landing, uint64_t seed);

// True if the collective puts `element` into kOutput of `node` before the start.
bool starts_in_output(const Problem& problem, int node, uint64_t element);

}  // namespace hdt::collectives
