// checker.cc: the checker's stages in order. Each relies on what the stages before have proven, so the
// first error ends the check.
#include "collectives/checker.h"

#include "collectives/checker_plan.h"

namespace hdt::collectives {
namespace {

constexpr size_t kMostSteps = size_t{1} << 20;  // of a node; a longer schedule counts as endless
constexpr uint64_t kSeed = 1;                   // fixed, so that a failure can be repeated

}  // namespace

std::optional<StepList> list_steps(const Schedule& schedule, size_t most) {
  StepList list;
  for (size_t i = 0; const auto step = schedule.step(i); ++i) {
    if (i == most) return std::nullopt;
    list.steps.push_back(*step);
  }
  // Backwards, so that a schedule that keeps a position is found out.
  for (size_t i = list.steps.size(); i-- > 0;) {
    if (schedule.step(i) != list.steps[i]) return std::nullopt;
  }
  if (schedule.step(list.steps.size() + 1)) return std::nullopt;
  list.scratch_length = schedule.scratch_length();
  return list;
}

std::string check(Algorithm algorithm, const Problem& problem, uint64_t scratch_limit) {
  if (std::string wrong = check_problem(problem, problem.nodes); !wrong.empty()) return wrong;
  std::vector<StepList> lists;
  for (int node = 0; node < problem.nodes; ++node) {
    Problem own = problem;
    own.me = node;
    auto list = list_steps(*make_schedule(algorithm, own), kMostSteps);
    if (!list) return "node " + std::to_string(node) + ": its schedule is not pure, or has no end";
    lists.push_back(std::move(*list));
  }
  return check(lists, problem, scratch_limit);
}

std::string check(const std::vector<StepList>& lists, const Problem& problem, uint64_t scratch_limit) {
  if (std::string wrong = check_problem(problem, lists.size()); !wrong.empty()) return wrong;
  // Structure first, then order, then values.
  Plan plan(problem, lists);
  if (std::string wrong = check_ranges(plan, scratch_limit); !wrong.empty()) return wrong;
  if (std::string wrong = match_messages(plan); !wrong.empty()) return wrong;
  if (std::string wrong = order_steps(plan); !wrong.empty()) return wrong;
  if (std::string wrong = check_landings(plan); !wrong.empty()) return wrong;
  if (problem.what == Collective::kBarrier) return check_barrier(plan);
  for (const Landing landing : {Landing::kEarliest, Landing::kLatest, Landing::kRandom}) {
    if (std::string wrong = check_values(plan, landing, kSeed); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace hdt::collectives
