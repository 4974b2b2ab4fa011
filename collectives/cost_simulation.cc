// cost_simulation.cc: a discrete-event simulation. Ports and links serve messages in the order of
// events, a CPU runs the steps of its oldest chunk first, and events of the same time come in the order
// in which they were foreseen. So a run has exactly one outcome.
//
// A send passes through these events: the CPU has run it (kRan), the message enters the queue of its port
// (transmit) unless its peer has not begun the chunk, port and link are free for it (kStarts), its first byte
// reaches the peer (kReached), its last byte has arrived (kArrived), and the memory is the sender's again
// (kSent, which may come before or after the arrival).
//
// The engine is taken when a message starts, not when it is queued: a message that is queued behind others of
// its link would otherwise keep the engine from what arrives meanwhile.
#include "collectives/cost_simulation.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <queue>
#include <utility>

#include "collectives/executor.h"

namespace hdt::collectives {
namespace {

// A step of one of the chunks. Ordered by chunk, then by step.
struct Task {
  uint32_t chunk;
  uint32_t step;
  auto operator<=>(const Task&) const = default;
};
// A queue whose top is the smallest.
template <typename T>
using SmallestFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

// The events in a task's life.
enum class EventKind : uint8_t {
  kRan,      // the CPU has run the step
  kStarts,   // port and link are free for the message
  kSent,     // the payload's memory is the sender's again
  kReached,  // its first byte has come to the receiver's port
  kArrived,  // its last byte is in the receiver's memory
};

// `number` counts the events as they are foreseen and breaks ties of time.
struct Event {
  uint64_t time;
  uint32_t number;
  EventKind kind;
  Task task;
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

// The state of one node. Times are in picoseconds.
struct Node {
  SmallestFirst<Task> ready;  // can run; the oldest chunk's first, in list order
  bool running = false;       // the CPU runs a step
  // When its port is free again, by direction.
  uint64_t sends_until = 0;
  uint64_t receives_until = 0;
  uint64_t engine_until = 0;  // both directions
  uint32_t begun = 0;         // chunks
  std::vector<Task> held;     // sends to this node of chunks that it has not begun
};

// One run. Chunks in flight share places: chunk p uses place p % in_flight, as the engine uses slots.
class Simulation {
 public:
  Simulation(const CostProgram& program, uint32_t chunks, uint32_t in_flight)
      : program_(program),
        in_flight_(std::min(in_flight, chunks)),
        nodes_(program.nodes),
        link_until_(static_cast<size_t>(program.nodes) * program.nodes),
        waits_(in_flight_ * program.steps.size()),
        complete_(in_flight_ * program.steps.size()),
        first_(in_flight_ * program.nodes),
        remaining_(in_flight_ * program.nodes),
        ends_(chunks) {}

  // Ends when no event is left, which is when all chunks are complete.
  std::vector<uint64_t> run() {
    for (int node = 0; node < program_.nodes; ++node) begin_chunks(node);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event.kind, event.task);
    }
    return std::move(ends_);
  }

 private:
  const TimedStep& step(Task task) const { return program_.steps[task.step]; }
  // Indices into the arrays by place.
  size_t of_step(uint32_t chunk, uint32_t step) const {
    return chunk % in_flight_ * program_.steps.size() + step;
  }
  size_t of_node(uint32_t chunk, int node) const {
    return chunk % in_flight_ * nodes_.size() + static_cast<size_t>(node);
  }
  uint32_t steps_of(int node) const {
    return program_.first_of_node[node + 1] - program_.first_of_node[node];
  }
  void foresee(uint64_t time, EventKind kind, Task task) { events_.push({time, number_++, kind, task}); }

  // A node begins the next chunk as soon as the place of the one `in_flight` before it is free. Sends
  // that waited for this node to begin are then transmitted.
  void begin_chunks(int node) {
    Node& here = nodes_[node];
    while (here.begun < ends_.size() && remaining_[of_node(here.begun, node)] == 0) {
      const uint32_t chunk = here.begun++;
      remaining_[of_node(chunk, node)] = steps_of(node);
      first_[of_node(chunk, node)] = program_.first_of_node[node];
      for (uint32_t i = program_.first_of_node[node]; i < program_.first_of_node[node + 1]; ++i) {
        complete_[of_step(chunk, i)] = false;
        waits_[of_step(chunk, i)] = program_.steps[i].waits;
        if (program_.steps[i].waits == 0) here.ready.push({chunk, i});
      }
    }
    for (const Task task : std::exchange(here.held, {})) transmit(task);
    run_next(here);
  }

  // The CPU takes the next ready step if it is idle.
  void run_next(Node& here) {
    if (here.running || here.ready.empty()) return;
    const Task task = here.ready.top();
    here.ready.pop();
    here.running = true;
    foresee(now_ + step(task).cpu, EventKind::kRan, task);
  }

  // The transitions described above.
  void handle(EventKind kind, Task task) {
    switch (kind) {
      case EventKind::kRan:
        nodes_[step(task).node].running = false;
        step(task).kind == StepKind::kSend ? transmit(task) : complete(task);
        return run_next(nodes_[step(task).node]);
      case EventKind::kStarts:
        return start(task);
      case EventKind::kSent:
        return complete(task);
      case EventKind::kReached:
        return enter(task);
      case EventKind::kArrived:
        if (step(task).acknowledged != 0) foresee(now_ + step(task).acknowledged, EventKind::kSent, task);
        return release({task.chunk, step(task).receive});
    }
  }

  // The message enters the port when the port is free, and the link when that is free. The port is occupied
  // from its own start, the link from its.
  void transmit(Task task) {
    const TimedStep& send = step(task);
    if (nodes_[send.peer].begun <= task.chunk) return nodes_[send.peer].held.push_back(task);
    uint64_t& port = nodes_[send.node].sends_until;
    uint64_t& link = link_until_[static_cast<size_t>(send.node) * nodes_.size() + send.peer];
    const uint64_t enters = std::max({now_, port, send.told});
    const uint64_t starts = std::max(enters, link);
    port = enters + send.sender_port;
    link = starts + send.link;
    starts == now_ ? start(task) : foresee(starts, EventKind::kStarts, task);
  }

  // The engine carries the message when it is free.
  void start(Task task) {
    const TimedStep& send = step(task);
    uint64_t& engine = nodes_[send.node].engine_until;
    const uint64_t carried = send.sender_engine != 0 ? std::max(now_, engine) : now_;
    if (send.sender_engine != 0) engine = carried + send.sender_engine;
    // The link is not faster than the port, so it is what keeps the memory.
    if (send.acknowledged == 0) foresee(carried + send.link, EventKind::kSent, task);
    foresee(carried + send.latency, EventKind::kReached, task);
  }

  // The first byte is at the receiver's port. The last one has arrived when port and engine have carried
  // it and when the link has delivered it, whichever is later: a slow link brings the last byte later
  // than the port could take it.
  void enter(Task task) {
    const TimedStep& send = step(task);
    uint64_t& port = nodes_[send.peer].receives_until;
    uint64_t& engine = nodes_[send.peer].engine_until;
    port = std::max(now_, port) + send.receiver_port;
    if (send.receiver_engine != 0) engine = std::max(now_, engine) + send.receiver_engine;
    const uint64_t carried = send.receiver_engine != 0 ? engine : now_;
    foresee(std::max({port, carried, now_ + send.link}), EventKind::kArrived, task);
  }

  // One cause fewer for a step; the last one makes it ready.
  void release(Task task) {
    if (--waits_[of_step(task.chunk, task.step)] > 0) return;
    Node& here = nodes_[step(task).node];
    here.ready.push(task);
    run_next(here);
  }

  // A step is complete: releases those that wait for it, moves the window (each step that leaves it at
  // the front lets one in at the end), and ends the chunk at this node with its last step.
  void complete(Task task) {
    const int node = step(task).node;
    complete_[of_step(task.chunk, task.step)] = true;
    for (uint32_t i = program_.first_waiting[task.step]; i < program_.first_waiting[task.step + 1]; ++i) {
      release({task.chunk, program_.waiting[i]});
    }
    const uint32_t end = program_.first_of_node[node + 1];
    uint32_t& first = first_[of_node(task.chunk, node)];
    while (first < end && complete_[of_step(task.chunk, first)]) {
      if (++first + kStepWindow <= end) {
        release({task.chunk, first + static_cast<uint32_t>(kStepWindow) - 1});
      }
    }
    if (--remaining_[of_node(task.chunk, node)] > 0) return;
    ends_[task.chunk] = now_;  // events come in the order of time, so the last node's stays
    begin_chunks(node);
  }

  // The input, then the state of the run.
  const CostProgram& program_;
  const uint32_t in_flight_;
  uint64_t now_ = 0;  // the time of the event that is handled
  uint32_t number_ = 0;
  SmallestFirst<Event> events_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> link_until_;  // by sender and receiver
  // By place of a chunk in flight, and step or node.
  std::vector<uint32_t> waits_;
  std::vector<bool> complete_;
  std::vector<uint32_t> first_;  // step that is not complete
  std::vector<uint32_t> remaining_;
  std::vector<uint64_t> ends_;
};

}  // namespace

std::vector<uint64_t> simulate(const CostProgram& program, uint32_t chunks, uint32_t in_flight) {
  return Simulation(program, chunks, in_flight).run();
}

}  // namespace hdt::collectives
