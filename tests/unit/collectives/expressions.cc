// expressions.cc: see expressions.h. Every node runs strictly in list order; what passed the checker gives
// the same under any timing.
#include "tests/unit/collectives/expressions.h"

#include <array>
#include <deque>
#include <map>

#include "collectives/hazards.h"

namespace hdt::collectives::testing {
namespace {

using Text = std::vector<std::string>;

struct Expressions {
  std::array<Text, 3> area;
  size_t next = 0;
  std::map<int, std::deque<Text>> payload;  // by sender, in order
};

Text read(const Expressions& node, Area area, uint64_t offset, uint64_t length) {
  const Text& from = node.area[static_cast<size_t>(area)];
  const auto begin = from.begin() + static_cast<ptrdiff_t>(offset);
  return {begin, begin + static_cast<ptrdiff_t>(length)};
}

// False if the step waits for a payload.
bool run(const Step& step, int me, std::vector<Expressions>& nodes) {
  Expressions& node = nodes[me];
  Text operand;
  if (is_receive(step)) {
    std::deque<Text>& payload = node.payload[step.peer];
    if (payload.empty()) return false;
    operand = payload.front();
    payload.pop_front();
  }
  Text value = step.kind == StepKind::kRecv ? operand : read(node, step.from, step.offset, step.length);
  if (step.kind == StepKind::kSend) {
    nodes[step.peer].payload[me].push_back(value);
    return true;
  }
  for (uint64_t e = 0; e < step.length; ++e) {
    // The operands from left to right.
    Text operands = {value[e]};
    if (step.kind == StepKind::kRecvReduce) operands.insert(operands.begin() + !step.peer_first, operand[e]);
    if (step.kind == StepKind::kReduce) {
      for (int c = 0; c < step.gathered; ++c) {
        const uint64_t at = step.target + static_cast<uint64_t>(c) * step.length + e;
        operands.insert(operands.begin() + c + (c >= step.place), read(node, Area::kScratch, at, 1)[0]);
      }
    }
    std::string all = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) all = "(" + all + " " + operands[i] + ")";
    node.area[static_cast<size_t>(step.to)][written_by(step).offset + e] = all;
  }
  return true;
}

}  // namespace

std::vector<std::vector<std::string>> results(const std::vector<StepList>& lists, const Problem& problem) {
  std::vector<Expressions> nodes(lists.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    const std::string own = reduces(problem.what) ? std::to_string(n) : "";
    nodes[n].area = {Text(problem.elements(), own), Text(problem.elements()), Text(lists[n].scratch_length)};
  }
  for (bool ran = true; ran;) {
    ran = false;
    for (size_t n = 0; n < nodes.size(); ++n) {
      const auto& steps = lists[n].steps;
      while (nodes[n].next < steps.size() && run(steps[nodes[n].next], static_cast<int>(n), nodes)) {
        ++nodes[n].next;
        ran = true;
      }
    }
  }
  std::vector<std::vector<std::string>> found;
  for (const Expressions& node : nodes) found.push_back(node.area[static_cast<size_t>(Area::kOutput)]);
  return found;
}

}  // namespace hdt::collectives::testing
