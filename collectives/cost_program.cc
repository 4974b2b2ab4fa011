// cost_program.cc: turns steps into timed steps. Durations come from the measurements, dependencies from
// the executor's rules (hazards.h, kStepWindow) and from the matching of sends and receives.
#include "collectives/cost_program.h"

#include <algorithm>
#include <cmath>

#include "collectives/executor.h"
#include "collectives/hazards.h"

namespace hdt::collectives {
namespace {

// The duration for measurements without sense (a rate of 0, NaN): 18 minutes, of which sums of thousands
// still fit into 64 bits.
constexpr uint64_t kLongest = uint64_t{1} << 50;

// amount * picoseconds_each, rounded. One product and one rounding, so that every node gets the same.
uint64_t picoseconds(double amount, double picoseconds_each) {
  const double exact = amount * picoseconds_each;
  return exact >= 0 && exact < static_cast<double>(kLongest) ? static_cast<uint64_t>(std::llround(exact))
                                                             : kLongest;
}
uint64_t time_of(double seconds) { return picoseconds(seconds, 1e12); }

// Builds a program in three passes: durations, messages, hazards.
class ProgramBuilder {
 public:
  ProgramBuilder(const std::vector<std::vector<Step>>& lists, const Operation& operation,
                 const CostMeasurements& measurements)
      : lists_(lists),
        element_bytes_(static_cast<double>(type_size(operation.type))),
        tells_outputs_(operation.tells_outputs),
        measurements_(measurements) {
    program_.nodes = static_cast<int>(lists.size());
    measure_ports();
  }

  CostProgram build() {
    program_.first_of_node.push_back(0);
    for (int node = 0; node < program_.nodes; ++node) {
      for (const Step& step : lists_[node]) program_.steps.push_back(timed(node, step));
      program_.first_of_node.push_back(static_cast<uint32_t>(program_.steps.size()));
    }
    match_messages();
    find_waits();
    return std::move(program_);
  }

 private:
  // The measurements of one direction.
  LinkMeasurements link(int from, int to) const {
    return measurements_.link_of ? measurements_.link_of(from, to) : measurements_.link;
  }

  MemoryMeasurements memory(int node) const {
    if (measurements_.memory.empty()) return {measurements_.reduce_bytes_s, measurements_.copy_bytes_s};
    return measurements_.memory[static_cast<size_t>(node)];
  }

  // A port is as fast as the fastest link of its node in that direction. An engine is as fast as the link on
  // which it carries the most both ways. Where another link carries less, that link or the peer is the limit.
  void measure_ports() {
    ports_.resize(program_.nodes);
    for (int from = 0; from < program_.nodes; ++from) {
      for (int to = 0; to < program_.nodes; ++to) {
        if (from == to) continue;
        const LinkMeasurements way = link(from, to);
        ports_[from].out = std::max(ports_[from].out, way.bandwidth_bytes_s);
        ports_[to].in = std::max(ports_[to].in, way.bandwidth_bytes_s);
        for (const int end : {from, to})
          ports_[end].duplex = std::max(ports_[end].duplex, way.duplex_bytes_s);
      }
    }
  }

  // Half of the time that the bytes take both ways at once, and not more than the link alone needs: an engine
  // that is not in use the other way is no limit.
  uint64_t engine_time(int node, double bytes, uint64_t link) const {
    if (ports_[node].duplex <= 0) return 0;
    return std::min(link, picoseconds(bytes, 0.5e12 / ports_[node].duplex));
  }

  // The durations of a step. Every step costs the CPU its overhead.
  TimedStep timed(int node, const Step& step) const {
    const double bytes = static_cast<double>(step.length) * element_bytes_;
    TimedStep result{node, step.peer, step.kind, time_of(measurements_.step_overhead_s)};
    switch (step.kind) {
      case StepKind::kRecv:
        break;
      case StepKind::kRecvReduce:
        result.cpu += picoseconds(bytes, 1e12 / memory(node).reduce_bytes_s);
        break;
      case StepKind::kReduce:
        result.cpu += picoseconds(bytes * step.gathered, 1e12 / memory(node).reduce_bytes_s);
        break;
      case StepKind::kCopy:
        result.cpu += picoseconds(bytes, 1e12 / memory(node).copy_bytes_s);
        break;
      case StepKind::kSend: {
        const LinkMeasurements way = link(node, step.peer);
        result.sender_port = picoseconds(bytes, 1e12 / ports_[node].out);
        result.link = picoseconds(bytes, 1e12 / way.bandwidth_bytes_s);
        result.latency = time_of(way.latency_s);
        result.receiver_port = picoseconds(bytes, 1e12 / ports_[step.peer].in);
        result.sender_engine = engine_time(node, bytes, result.link);
        result.receiver_engine = engine_time(step.peer, bytes, result.link);
        const uint64_t way_back = time_of(link(step.peer, node).latency_s);
        if (tells_outputs_ && step.to == Area::kOutput) result.told = way_back;
        if (bytes > static_cast<double>(measurements_.copied_bytes)) result.acknowledged = way_back;
        break;
      }
    }
    return result;
  }

  // Gives each send the receive that waits for its payload: the k-th send from a to b belongs to the
  // k-th receive at b from a. The receives are sorted by pair of nodes (counting sort), then the sends
  // take them in order.
  void match_messages() {
    const auto nodes = static_cast<size_t>(program_.nodes);
    std::vector<uint32_t> first(nodes * nodes + 1);  // by pair of nodes, in `receives`
    const auto pair_of = [&](const TimedStep& s) {
      return s.kind == StepKind::kSend ? s.node * nodes + s.peer : s.peer * nodes + s.node;
    };
    for (const TimedStep& s : program_.steps) first[s.kind == StepKind::kSend ? pair_of(s) + 1 : 0] += 1;
    first[0] = 0;
    for (size_t pair = 0; pair < nodes * nodes; ++pair) first[pair + 1] += first[pair];
    std::vector<uint32_t> receives(first.back());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (uint32_t i = 0; i < program_.steps.size(); ++i) {
      TimedStep& s = program_.steps[i];
      if (s.kind != StepKind::kRecv && s.kind != StepKind::kRecvReduce) continue;
      receives[next[pair_of(s)]++] = i;
      ++s.waits;
    }
    next.assign(first.begin(), first.end() - 1);
    for (TimedStep& s : program_.steps) {
      if (s.kind == StepKind::kSend) s.receive = receives[next[pair_of(s)]++];
    }
  }

  // Lists for each step the later ones that wait for it. Steps further apart than the window never wait
  // for each other directly: the later one is not looked at before the earlier one is complete. Each
  // step beyond the first window waits for its entry into it.
  void find_waits() {
    for (int node = 0; node < program_.nodes; ++node) {
      const std::vector<Step>& list = lists_[node];
      const uint32_t base = program_.first_of_node[node];
      for (size_t i = 0; i < list.size(); ++i) {
        program_.first_waiting.push_back(static_cast<uint32_t>(program_.waiting.size()));
        if (i >= kStepWindow) ++program_.steps[base + i].waits;
        for (size_t later = i + 1; later < std::min(list.size(), i + kStepWindow); ++later) {
          if (!conflicts(list[i], list[later])) continue;
          program_.waiting.push_back(base + static_cast<uint32_t>(later));
          ++program_.steps[base + later].waits;
        }
      }
    }
    program_.first_waiting.push_back(static_cast<uint32_t>(program_.waiting.size()));
  }

  // Bytes per second in each direction, and each way while both are in use (0: that is no limit).
  struct Port {
    double out = 0;
    double in = 0;
    double duplex = 0;
  };

  const std::vector<std::vector<Step>>& lists_;
  const double element_bytes_;
  const bool tells_outputs_;
  const CostMeasurements& measurements_;
  std::vector<Port> ports_;
  CostProgram program_;
};

}  // namespace

std::vector<std::vector<Step>> steps_of_all(Algorithm algorithm, const Problem& problem) {
  std::vector<std::vector<Step>> lists(problem.nodes);
  Problem own = problem;
  for (own.me = 0; own.me < own.nodes; ++own.me) {
    const auto schedule = make_schedule(algorithm, own);
    while (const auto step = schedule->step(lists[own.me].size())) lists[own.me].push_back(*step);
  }
  return lists;
}

// An engine carries a message at both of its ends.
uint64_t busiest(const CostProgram& program) {
  const auto nodes = static_cast<size_t>(program.nodes);
  std::vector<uint64_t> busy(4 * nodes);  // CPUs, ports outwards, ports inwards, engines
  for (const TimedStep& step : program.steps) {
    busy[step.node] += step.cpu;
    if (step.kind != StepKind::kSend) continue;
    busy[nodes + step.node] += step.sender_port;
    busy[2 * nodes + step.peer] += step.receiver_port;
    busy[3 * nodes + step.node] += step.sender_engine;
    busy[3 * nodes + step.peer] += step.receiver_engine;
  }
  return *std::max_element(busy.begin(), busy.end());
}

CostProgram make_cost_program(const std::vector<std::vector<Step>>& lists, const Operation& operation,
                              const CostMeasurements& measurements) {
  return ProgramBuilder(lists, operation, measurements).build();
}

}  // namespace hdt::collectives
