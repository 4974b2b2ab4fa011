// checker_structure.cc: what can be said of each step and of each message by itself: ranges, areas,
// scratch, and that the k-th send to a node is what its k-th receive expects. Also the numbering of the
// steps and their description for errors.
#include <algorithm>
#include <sstream>

#include "collectives/checker_plan.h"
#include "collectives/hazards.h"

namespace hdt::collectives {
namespace {

const char* name_of(Area area) {
  constexpr const char* kNames[] = {"input", "output", "scratch"};
  return kNames[static_cast<size_t>(area)];
}

// Whether [offset, offset + length) lies below `size`; written so that offset + length cannot wrap.
bool fits(uint64_t offset, uint64_t length, uint64_t size) {
  return length <= size && offset <= size - length;
}

// Steps whose payload fills a stretch of scratch: each needs one of its own.
bool fills_scratch(const Step& step) {
  return step.kind == StepKind::kRecvReduce || (step.kind == StepKind::kRecv && step.to == Area::kScratch);
}

// The fault of a step, for the end of a sentence; "" if nothing is.
std::string wrong_in(const Step& step, int node, const Problem& problem, uint64_t scratch_length) {
  // The rules of each kind of step for areas.
  const bool has_peer = step.kind != StepKind::kCopy && step.kind != StepKind::kReduce;
  const bool combines = step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce;
  if (has_peer && (step.peer < 0 || step.peer >= problem.nodes || step.peer == node))
    return "has no such peer";
  if (!has_peer && step.peer != -1) return "is local but names a peer";
  if (step.length == 0 && problem.what != Collective::kBarrier) return "moves nothing";
  if (!fits(step.offset, step.length, problem.elements())) return "leaves its area";
  if (step.kind != StepKind::kRecv && step.from == Area::kScratch) return "reads scratch";
  if (step.to == Area::kScratch && (combines || step.kind == StepKind::kCopy)) return "writes scratch";
  if (step.kind == StepKind::kCopy && step.from == step.to) return "copies within one area";
  if (combines && step.from == step.to) return "overwrites its input";
  if (step.kind == StepKind::kReduce && (step.gathered < 1 || step.place < 0 || step.place > step.gathered))
    return "has no such place among its operands";
  // A kReduce reads what is compared with the receives that have filled it.
  if (fills_scratch(step) && !fits(step.target, step.length, scratch_length))
    return "leaves the scratch its schedule asks for";
  return "";
}

}  // namespace

// Numbers the steps through, node by node.
Plan::Plan(const Problem& the_problem, const std::vector<StepList>& the_lists)
    : problem(the_problem), lists(the_lists) {
  first_of_node.push_back(0);
  for (size_t node = 0; node < lists.size(); ++node) {
    node_of.insert(node_of.end(), lists[node].steps.size(), static_cast<int>(node));
    first_of_node.push_back(static_cast<uint32_t>(node_of.size()));
  }
}

std::string Plan::describe(uint32_t number) const {
  constexpr const char* kKinds[] = {"send to", "recv from", "recv_reduce from", "copy", "reduce"};
  const Step& s = step(number);
  std::ostringstream text;
  text << "node " << node_of[number] << ", step " << number - first_of_node[node_of[number]] << " ("
       << kKinds[static_cast<size_t>(s.kind)];
  if (s.peer >= 0) text << " " << s.peer;
  text << ": ";
  if (s.kind != StepKind::kRecv) text << name_of(s.from) << " to ";
  text << name_of(s.to) << " [" << s.offset << ", +" << s.length << ")";
  if (s.kind == StepKind::kSend || s.to == Area::kScratch) text << ", target " << s.target;
  if (s.kind == StepKind::kRecvReduce) text << ", scratch " << s.target;
  if (s.kind == StepKind::kReduce)
    text << ", number " << s.place << " beside " << s.gathered << " of scratch " << s.target;
  text << ")";
  return text.str();
}

std::string check_problem(const Problem& problem, size_t lists) {
  const auto& offsets = problem.block_offsets;
  if (problem.nodes < 1 || lists != static_cast<size_t>(problem.nodes))
    return "problem: one step list per node";
  if (offsets.size() != static_cast<size_t>(problem.nodes) + 1 || offsets[0] != 0 ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    return "problem: block_offsets must be nodes + 1 ascending values from 0";
  }
  if (problem.root < 0 || problem.root >= problem.nodes) return "problem: root is no node";
  if (problem.far_end < -1 || problem.far_end >= problem.nodes || problem.far_end == problem.root)
    return "problem: far_end is no other node than the root";
  return "";
}

// Whether each of the contributions that a kReduce reads is what one of the `fillings` has received.
static bool is_filled(const Step& reduce, const Plan& plan, const std::vector<uint32_t>& fillings) {
  for (int i = 0; i < reduce.gathered; ++i) {
    const uint64_t at = reduce.target + static_cast<uint64_t>(i) * reduce.length;
    if (std::none_of(fillings.begin(), fillings.end(), [&](uint32_t filling) {
          const Step& by = plan.step(filling);
          return by.kind == StepKind::kRecv && by.target == at && by.length == reduce.length;
        })) {
      return false;
    }
  }
  return true;
}

// For each node: every step, then the stretches of scratch against each other. Sorted by place, only
// neighbours can overlap first.
std::string check_ranges(const Plan& plan, uint64_t scratch_limit) {
  for (size_t node = 0; node < plan.lists.size(); ++node) {
    const uint64_t scratch_length = plan.lists[node].scratch_length;
    if (scratch_length > scratch_limit) {
      return "node " + std::to_string(node) + " needs " + std::to_string(scratch_length) +
             " elements of scratch, " + std::to_string(scratch_limit) + " are allowed";
    }
    std::vector<uint32_t> fillings;
    for (uint32_t i = plan.first_of_node[node]; i < plan.first_of_node[node + 1]; ++i) {
      const std::string wrong = wrong_in(plan.step(i), static_cast<int>(node), plan.problem, scratch_length);
      if (!wrong.empty()) return plan.describe(i) + " " + wrong;
      if (plan.step(i).kind == StepKind::kReduce && !is_filled(plan.step(i), plan, fillings))
        return plan.describe(i) + " reads scratch that no receive before it has filled";
      if (fills_scratch(plan.step(i))) fillings.push_back(i);
    }
    std::sort(fillings.begin(), fillings.end(),
              [&](uint32_t a, uint32_t b) { return plan.step(a).target < plan.step(b).target; });
    for (size_t i = 1; i < fillings.size(); ++i) {
      const Step& low = plan.step(fillings[i - 1]);
      if (low.target + low.length <= plan.step(fillings[i]).target) continue;
      return plan.describe(fillings[i]) + " uses scratch that " + plan.describe(fillings[i - 1]) + " uses";
    }
  }
  return "";
}

// Collects the sends of each pair of nodes, then gives each receive the next one of its pair.
std::string match_messages(Plan& plan) {
  const size_t nodes = plan.lists.size();
  std::vector<std::vector<uint32_t>> sends(nodes * nodes);
  for (uint32_t i = 0; i < plan.size(); ++i) {
    if (plan.step(i).kind == StepKind::kSend) sends[plan.node_of[i] * nodes + plan.step(i).peer].push_back(i);
  }
  plan.match.assign(plan.size(), 0);
  std::vector<size_t> matched(nodes * nodes);
  for (uint32_t i = 0; i < plan.size(); ++i) {
    const Step& recv = plan.step(i);
    if (!is_receive(recv)) continue;
    const size_t pair = recv.peer * nodes + plan.node_of[i];
    if (matched[pair] == sends[pair].size()) return plan.describe(i) + " has no send";
    const uint32_t number = sends[pair][matched[pair]++];
    const Step& send = plan.step(number);
    const bool to_scratch = fills_scratch(recv);
    if (send.length != recv.length || send.to != (to_scratch ? Area::kScratch : recv.to) ||
        send.target != (to_scratch ? recv.target : recv.offset)) {
      return plan.describe(number) + " does not send what " + plan.describe(i) + " expects";
    }
    plan.match[i] = number;
    plan.match[number] = i;
  }
  for (size_t pair = 0; pair < sends.size(); ++pair) {
    if (matched[pair] < sends[pair].size()) return plan.describe(sends[pair][matched[pair]]) + " has no recv";
  }
  return "";
}

}  // namespace hdt::collectives
