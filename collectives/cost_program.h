// cost_program.h: the steps of all nodes with what each takes in picoseconds and what it waits for. Internal
// to the cost model: built once for an operation, run for each of its pieces (cost_simulation.h).
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/cost_model.h"

namespace hdt::collectives {

struct TimedStep {
  int node;
  int peer;
  StepKind kind;
  uint64_t cpu;  // picoseconds, this one and the next seven; those are of sends only
  uint64_t sender_port = 0;
  uint64_t link = 0;
  uint64_t latency = 0;
  uint64_t receiver_port = 0;
  uint64_t engine = 0;        // of the sender and of the receiver
  uint64_t told = 0;          // not before that, from the start of the operation
  uint64_t acknowledged = 0;  // from its arrival until the sender knows; 0: it need not
  uint32_t receive = 0;       // of a send: the step that waits for its payload
  // Steps of its node that it has to see complete, the payload it receives, and its place in the window.
  uint32_t waits = 0;
};

struct CostProgram {
  int nodes = 0;
  std::vector<TimedStep> steps;         // of all nodes, node by node
  std::vector<uint32_t> first_of_node;  // nodes + 1 values
  std::vector<uint32_t> first_waiting;  // steps + 1 values: the range of `waiting` that waits for a step
  std::vector<uint32_t> waiting;
};

// All nodes' steps, as the cost model sees them.
std::vector<std::vector<Step>> steps_of_all(Algorithm algorithm, const Problem& problem);

// The time that a piece takes of the CPU, port or engine that it takes most of: no pipeline gives pieces
// faster than that.
uint64_t busiest(const CostProgram& program);

CostProgram make_cost_program(const std::vector<std::vector<Step>>& lists, const Operation& operation,
                              const CostFigures& figures);

}  // namespace hdt::collectives
