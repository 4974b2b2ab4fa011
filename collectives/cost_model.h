// cost_model.h: predicts how long an operation takes, by running the very steps of all nodes on a
// described network in simulated time. It is the third interpreter of schedules (schedule.h); it moves
// no bytes and knows no values. Callers are the tuner (daemon/group/tuner.h) and the planner
// (training/plan).
//
// A message costs latency + bytes / bandwidth (Hockney 1994: "The communication challenge for MPP"). As
// in LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995), what a message occupies is kept apart from
// what it only waits for:
//   CPU      runs one step of its node at a time, those of the oldest chunk first: step_overhead_s (LogGP's
//            o), and the time to combine or copy the bytes in the memory of its node
//   port     all NICs of a node as one: in each direction one message after the other, bytes / bandwidth
//            (LogGP's G). It is as fast as the fastest link of its node
//   link     from one node to another: bytes / its own bandwidth (slower than the port where the peer is
//            slower), then latency_s (LogGP's L)
//   engine   what carries both directions of a node's messages, where that is less than both ports can do at
//            once (a thread that copies into sockets and out of them): for each message half of the time that
//            the same bytes take both ways on that link of the node which carries the most
//
// A message passes through the sender's port, the link and the receiver's port at the same time, not one
// after the other. Its memory is the sender's again when it has left, or, if it is not copied, when the
// receiver's acknowledgement has come back. A message to an output whose place the receiver must send
// first does not leave before that (as long messages do by rendezvous: LogGPS, Ino, Fujimoto, Hagihara
// 2001). Steps start as in the executor: when the earlier ones they conflict with are over, within its
// window. Chunks follow one another as in the engine: a node has several in flight, and sends only what
// its peer has begun to work on.
//
// Every node must come to the same answer from the same measurements. So time is counted in whole
// picoseconds, and a duration is a product of two numbers, rounded, which no compiler and no CPU
// computes otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/schedule.h"

namespace hdt::collectives {

// Measurements of one direction between two nodes (LogGP's L and G).
struct LinkMeasurements {
  double latency_s = 0;
  double bandwidth_bytes_s = 0;
  double duplex_bytes_s = 0;  // each way, while both ways are in use; 0: as much as one way alone
};

// The speed of the memory of one node.
struct MemoryMeasurements {
  double reduce_bytes_s = 0;  // bytes of the result of combining two operands
  double copy_bytes_s = 0;    // bytes that a kCopy step moves
};

// The speed of a network and its nodes. Rates are in bytes per second, above 0, and may be infinite; times
// are in seconds and not negative. Values without sense give times without sense, but no undefined behaviour.
struct CostMeasurements {
  LinkMeasurements link;       // of every pair of nodes, where link_of is not set
  double step_overhead_s = 0;  // of each step at the node that runs it
  // As in MemoryMeasurements: of every node, where `memory` is empty.
  double reduce_bytes_s = 0;
  double copy_bytes_s = 0;
  // For links that differ, by pair and direction; empty: all are `link`. Must be pure.
  std::function<LinkMeasurements(int from, int to)> link_of;
  // Messages of at most so many bytes are copied when they are sent. Longer ones stay in the sender's
  // memory until they have arrived and the acknowledgement is back.
  uint64_t copied_bytes = UINT64_MAX;
  // By node, where they differ: one entry for each node, or none.
  std::vector<MemoryMeasurements> memory = {};
};

// An operation as chunks of equal size, as the engine runs it.
struct Operation {
  Problem chunk;  // one of its chunks
  DataType type = DataType::kFloat32;
  uint64_t chunks = 1;         // the number of chunks, at least 1
  int chunks_in_flight = 1;    // at each node; at least 1
  bool tells_outputs = false;  // when it begins, every node tells the others where its output is
  // The blocks of pairwise, where they are others than those of `chunk`, of as many elements
  // (weighted_offsets() of owner_weights.h); empty: they are the same.
  std::vector<uint64_t> pairwise_offsets = {};
  // The same for two-level, and the places of the nodes (Problem::places).
  std::vector<uint64_t> two_level_offsets = {};
  std::vector<int> two_level_places = {};
};

// Seconds from the start of all nodes until the last one is done. Pure; any thread. It takes
// milliseconds for many nodes, so its answers are to be kept.
double predict(Algorithm algorithm, const Operation& operation, const CostMeasurements& measurements);

// One algorithm's place in a ranking.
struct Candidate {
  Algorithm algorithm;
  double seconds = 0;    // predicted; 0 if left out
  std::string left_out;  // "", or why it is no candidate, for people
};

// Every algorithm once: candidates first, the fastest at the front (of equal ones the first in
// Algorithm), then those left out. Left out is an algorithm that needs more scratch than `scratch_limit`
// elements at a node, or takes the same steps as one before it.
std::vector<Candidate> rank_algorithms(const Operation& operation, uint64_t scratch_limit,
                                       const CostMeasurements& measurements);

}  // namespace hdt::collectives
