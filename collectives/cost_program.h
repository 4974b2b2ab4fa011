// cost_program.h: the steps of all nodes, with what each takes in picoseconds and what it waits for.
// Internal to the cost model. A program is built once for an operation and run for each of its chunks
// (cost_simulation.h).
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/cost_model.h"

namespace hdt::collectives {

// One step with its durations, all in picoseconds. Those after `cpu` are for sends only.
struct TimedStep {
  int node;
  int peer;
  StepKind kind;
  uint64_t cpu;  // of its node
  uint64_t sender_port = 0;
  uint64_t link = 0;     // from node to peer
  uint64_t latency = 0;  // after which the first byte is at the receiver's port
  uint64_t receiver_port = 0;
  // 0: not a limit
  uint64_t sender_engine = 0;
  uint64_t receiver_engine = 0;
  // The time from the start of the operation at which the receiver's message with the place of its
  // output is here; the send does not leave earlier.
  uint64_t told = 0;
  // From its arrival until the sender has the acknowledgement. 0: the sender does not wait for one.
  uint64_t acknowledged = 0;
  uint32_t receive = 0;  // of a send: the step that waits for its payload
  // How many events must happen before it may run: the completion of earlier steps of its node that it
  // conflicts with, the arrival of the payload it receives, and its entry into the window.
  uint32_t waits = 0;
};

// All nodes' steps in one numbering. `waiting` is the graph of hazards, with the steps that wait for
// step s at [first_waiting[s], first_waiting[s + 1]).
struct CostProgram {
  int nodes = 0;
  std::vector<TimedStep> steps;         // of all nodes, node by node
  std::vector<uint32_t> first_of_node;  // nodes + 1 values
  std::vector<uint32_t> first_waiting;  // steps + 1 values: the range of `waiting` that waits for a step
  std::vector<uint32_t> waiting;
};

// The steps of all nodes, by node.
std::vector<std::vector<Step>> steps_of_all(Algorithm algorithm, const Problem& problem);

// The time that one chunk takes of the CPU, port or engine of which it takes the most. No pipeline
// completes chunks faster than one in this time.
uint64_t busiest(const CostProgram& program);

// Adds durations and dependencies to the steps of all nodes.
CostProgram make_cost_program(const std::vector<std::vector<Step>>& lists, const Operation& operation,
                              const CostMeasurements& measurements);

}  // namespace hdt::collectives
