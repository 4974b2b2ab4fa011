// checker_order.cc: the order that hazards and messages force on steps, and what follows from it alone,
// for any timing: no deadlock, no payload that lands on a range in use, no barrier that is passed before
// every node has started. Sets of steps are bit sets that are handed along the topological order.
#include <algorithm>

#include "collectives/checker_plan.h"
#include "collectives/hazards.h"

namespace hdt::collectives {
namespace {

// `count` sets of up to `bits` members each, as rows of one bit matrix.
class Sets {
 public:
  Sets(size_t count, size_t bits) : words_((bits + 63) / 64), data_(count * words_) {}
  void add(size_t set, size_t member) { data_[set * words_ + member / 64] |= uint64_t{1} << member % 64; }
  bool has(size_t set, size_t member) const { return data_[set * words_ + member / 64] >> member % 64 & 1; }
  // Adds the members of another set.
  void include(size_t set, size_t other) {
    for (size_t w = 0; w < words_; ++w) data_[set * words_ + w] |= data_[other * words_ + w];
  }

 private:
  size_t words_;
  std::vector<uint64_t> data_;
};

// Compares every pair of steps of a node. Quadratic, which is fine for tests.
void find_conflicts(Plan& plan) {
  plan.before.assign(plan.size(), {});
  plan.after.assign(plan.size(), {});
  for (size_t node = 0; node < plan.lists.size(); ++node) {
    const auto& steps = plan.lists[node].steps;
    const uint32_t first = plan.first_of_node[node];
    for (uint32_t later = 1; later < steps.size(); ++later) {
      for (uint32_t earlier = 0; earlier < later; ++earlier) {
        if (!conflicts(steps[earlier], steps[later])) continue;
        plan.before[first + later].push_back(first + earlier);
        plan.after[first + earlier].push_back(first + later);
      }
    }
  }
}

// Calls visit(p) for every step p whose completion step `number` waits for.
template <typename Visit>
void for_each_cause(const Plan& plan, uint32_t number, Visit visit) {
  for (const uint32_t p : plan.before[number]) visit(p);
  if (is_receive(plan.step(number))) visit(plan.match[number]);
}

// Receives of one node (kRecv), each paired with the earlier steps that it conflicts with: those must be
// over when the payload lands.
struct Landings {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // receive, earlier step
  std::vector<uint32_t> earlier;                     // the second ones, ascending, each once
  // The position of a step in `earlier`, or where it would be.
  size_t index(uint32_t step) const {
    return std::lower_bound(earlier.begin(), earlier.end(), step) - earlier.begin();
  }
};

// kRecvReduce needs none of this: its payload lands in scratch that nothing else uses.
Landings landings_of(const Plan& plan, size_t node) {
  Landings result;
  for (uint32_t i = plan.first_of_node[node]; i < plan.first_of_node[node + 1]; ++i) {
    if (plan.step(i).kind != StepKind::kRecv) continue;
    for (const uint32_t p : plan.before[i]) {
      result.pairs.emplace_back(i, p);
      result.earlier.push_back(p);
    }
  }
  std::sort(result.earlier.begin(), result.earlier.end());
  result.earlier.erase(std::unique(result.earlier.begin(), result.earlier.end()), result.earlier.end());
  return result;
}

// A payload may land before its receiver has started. If the receiver's own data is at that place at the
// start, some earlier step must use that data, so that the landing waits for it; otherwise the payload
// could come before the data.
std::string check_initial_data(const Plan& plan) {
  for (uint32_t i = 0; i < plan.size(); ++i) {
    const Step& step = plan.step(i);
    if (step.kind != StepKind::kRecv || step.to == Area::kScratch || !plan.before[i].empty()) continue;
    for (uint64_t e = step.offset; e < step.offset + step.length; ++e) {
      const bool filled = step.to == Area::kInput ? reduces(plan.problem.what)
                                                  : starts_in_output(plan.problem, plan.node_of[i], e);
      if (filled) return plan.describe(i) + " may land before the node's own data is there";
    }
  }
  return "";
}

}  // namespace

// Runs every node strictly in list order, where sends never wait. If that run comes to its end, so does
// every run that may also take steps out of order, because those wait for fewer steps.
std::string order_steps(Plan& plan) {
  find_conflicts(plan);
  std::vector<uint32_t> next(plan.first_of_node.begin(), plan.first_of_node.end() - 1);
  std::vector<bool> over(plan.size());
  plan.order.clear();
  size_t before;
  do {
    before = plan.order.size();
    for (size_t node = 0; node < next.size(); ++node) {
      uint32_t& at = next[node];
      while (at < plan.first_of_node[node + 1] && (!is_receive(plan.step(at)) || over[plan.match[at]])) {
        over[at] = true;
        plan.order.push_back(at++);
      }
    }
  } while (plan.order.size() != before);
  for (size_t node = 0; node < next.size(); ++node) {
    if (next[node] == plan.first_of_node[node + 1]) continue;
    return "deadlock: " + plan.describe(next[node]) + " waits for " + plan.describe(plan.match[next[node]]);
  }
  return "";
}

std::string check_landings(const Plan& plan) {
  if (std::string wrong = check_initial_data(plan); !wrong.empty()) return wrong;
  for (size_t node = 0; node < plan.lists.size(); ++node) {
    const Landings landings = landings_of(plan, node);
    if (landings.pairs.empty()) continue;
    // For each step: which of the node's earlier steps are certainly over when it starts. A send counts
    // as over for later steps of its node, as it has left the memory, and for the step at its peer that
    // its payload reaches.
    Sets past(plan.size(), landings.earlier.size());
    for (const uint32_t number : plan.order) {
      for_each_cause(plan, number, [&](uint32_t cause) {
        past.include(number, cause);
        const size_t member = landings.index(cause);
        if (member < landings.earlier.size() && landings.earlier[member] == cause) past.add(number, member);
      });
    }
    // The payload may land as soon as its send starts. So everything in conflict must be over by then.
    for (const auto& [recv, earlier] : landings.pairs) {
      if (past.has(plan.match[recv], landings.index(earlier))) continue;
      return plan.describe(recv) + ": its payload may land while " + plan.describe(earlier) + " is not over";
    }
  }
  return "";
}

// Collects for each node at its end which nodes have certainly started.
std::string check_barrier(const Plan& plan) {
  const size_t nodes = plan.lists.size();
  Sets started(plan.size() + nodes, nodes);  // rows: the steps, then the nodes at their end
  for (const uint32_t number : plan.order) {
    started.add(number, plan.node_of[number]);
    for_each_cause(plan, number, [&](uint32_t cause) { started.include(number, cause); });
    started.include(plan.size() + plan.node_of[number], number);
  }
  for (size_t node = 0; node < nodes; ++node) {
    for (size_t other = 0; other < nodes; ++other) {
      if (node == other || started.has(plan.size() + node, other)) continue;
      return "node " + std::to_string(node) + " may pass the barrier before node " + std::to_string(other) +
             " has started";
    }
  }
  return "";
}

}  // namespace hdt::collectives
