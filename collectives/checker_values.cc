// checker_values.cc: runs a plan on symbolic values. A cell is undefined, or holds one element's
// contributions of a set of nodes. Combining sets of different elements, or sets with a common member,
// is an error at once. The run is one possible timing; check_landings() has proven that timing cannot
// matter, so three timings are a second line of defence.
#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "collectives/checker_plan.h"
#include "collectives/hazards.h"

namespace hdt::collectives {
namespace {

constexpr int64_t kUndefined = -1;

// One run. Steps become ready when what they wait for is complete. A send that has started is in flight
// until it lands, which the Landing decides.
class SymbolicRun {
 public:
  // Lays out the cells of all nodes and defines those that hold data before the start.
  SymbolicRun(const Plan& plan, Landing landing, uint64_t seed)
      : plan_(plan), landing_(landing), random_(seed), words_((plan.problem.nodes + 63) / 64) {
    const uint64_t elements = plan.problem.elements();
    for (int node = 0; node < plan.problem.nodes; ++node) {
      bases_.push_back({cells_, cells_ + elements, cells_ + 2 * elements});
      cells_ += 2 * elements + plan.lists[node].scratch_length;
    }
    element_.assign(cells_, kUndefined);
    members_.assign(cells_ * words_, 0);
    for (int node = 0; node < plan.problem.nodes; ++node) {
      for (uint64_t e = 0; e < elements; ++e) {
        if (reduces(plan.problem.what)) define(cell(node, Area::kInput, e), node, e);
        if (starts_in_output(plan.problem, node, e)) define(cell(node, Area::kOutput, e), node, e);
      }
    }
  }

  // Takes ready steps and landings in turn until nothing is left, then compares. Steps cannot be left
  // waiting: order_steps() has found an order.
  std::string run() {
    waits_.resize(plan_.size());
    for (uint32_t i = 0; i < plan_.size(); ++i) {
      waits_[i] = plan_.before[i].size() + (is_receive(plan_.step(i)) ? 1 : 0);
      if (waits_[i] == 0) ready_.push_back(i);
    }
    while (wrong_.empty() && !(ready_.empty() && in_flight_.empty())) {
      if (lands_next()) {
        land(take(in_flight_));
      } else {
        start(take(ready_));
      }
    }
    return wrong_.empty() ? compare() : wrong_;
  }

 private:
  // The number of an element's cell.
  size_t cell(int node, Area area, uint64_t at) const { return bases_[node][static_cast<size_t>(area)] + at; }

  // Makes a cell hold the contribution of `node` to `element`.
  void define(size_t at, int node, uint64_t element) {
    element_[at] = static_cast<int64_t>(element);
    members_[at * words_ + node / 64] |= uint64_t{1} << node % 64;
  }

  // Whether a payload lands next; otherwise a step starts.
  bool lands_next() {
    if (in_flight_.empty() || ready_.empty()) return ready_.empty();
    if (landing_ == Landing::kRandom) return random_() % 2 == 0;
    return landing_ == Landing::kEarliest;
  }

  // Takes the latest one, or a random one.
  uint32_t take(std::vector<uint32_t>& from) {
    if (landing_ == Landing::kRandom) std::swap(from[random_() % from.size()], from.back());
    const uint32_t number = from.back();
    from.pop_back();
    return number;
  }

  // One cause fewer for a step.
  void release(uint32_t number) {
    if (--waits_[number] == 0) ready_.push_back(number);
  }
  void complete(uint32_t number) {
    for (const uint32_t later : plan_.after[number]) release(later);
  }

  // Runs a step. A send's memory is read when it lands, which is the latest moment that is allowed:
  // whatever changes the memory earlier is then found.
  void start(uint32_t number) {
    const Step& step = plan_.step(number);
    const int node = plan_.node_of[number];
    if (step.kind == StepKind::kSend) return in_flight_.push_back(number);
    for (uint64_t i = 0; i < step.length && wrong_.empty(); ++i) {
      const size_t to = cell(node, step.to, written_by(step).offset + i);
      if (step.kind == StepKind::kCopy) copy(number, cell(node, step.from, step.offset + i), to);
      if (step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce) {
        const int contributions = step.kind == StepKind::kReduce ? step.gathered : 1;
        size_t held = cell(node, step.from, step.offset + i);
        for (int c = 0; c < contributions; ++c, held = to) {
          const uint64_t at = step.target + static_cast<uint64_t>(c) * step.length + i;
          combine(number, held, cell(node, Area::kScratch, at), to);
        }
      }
    }
    complete(number);
  }

  // The payload reaches the peer: the send is complete here, and the peer's receive may start.
  void land(uint32_t number) {
    const Step& step = plan_.step(number);
    for (uint64_t i = 0; i < step.length && wrong_.empty(); ++i) {
      copy(number, cell(plan_.node_of[number], step.from, step.offset + i),
           cell(step.peer, step.to, step.target + i));
    }
    complete(number);
    release(plan_.match[number]);
  }

  void copy(uint32_t number, size_t from, size_t to) {
    if (element_[from] == kUndefined) wrong_ = plan_.describe(number) + " reads what nothing has written";
    element_[to] = element_[from];
    std::copy_n(&members_[from * words_], words_, &members_[to * words_]);
  }

  void combine(uint32_t number, size_t a, size_t b, size_t to) {
    if (element_[a] == kUndefined || element_[b] == kUndefined) {
      wrong_ = plan_.describe(number) + " combines what nothing has written";
    } else if (element_[a] != element_[b]) {
      wrong_ = plan_.describe(number) + " combines element " + std::to_string(element_[a]) +
               " with element " + std::to_string(element_[b]);
    }
    element_[to] = element_[a];
    for (size_t w = 0; w < words_; ++w) {
      const uint64_t first = members_[a * words_ + w];
      const uint64_t second = members_[b * words_ + w];
      if ((first & second) != 0 && wrong_.empty()) {
        const auto member = w * 64 + static_cast<size_t>(std::countr_zero(first & second));
        wrong_ =
            plan_.describe(number) + " uses the contribution of node " + std::to_string(member) + " twice";
      }
      members_[to * words_ + w] = first | second;
    }
  }

  // Compares kOutput of each node at the end with what must be there: every element that ends there, with the
  // contributions of all nodes (reducing collectives) or of its one source.
  std::string compare() const {
    for (int node = 0; node < plan_.problem.nodes; ++node) {
      for (uint64_t e = 0; e < plan_.problem.elements(); ++e) {
        if (!ends_in_output(node, e)) continue;
        const size_t at = cell(node, Area::kOutput, e);
        const std::string where = "node " + std::to_string(node) + ", output element " + std::to_string(e);
        if (element_[at] == kUndefined) return where + " was never written";
        if (element_[at] != static_cast<int64_t>(e))
          return where + " holds element " + std::to_string(element_[at]);
        for (int member = 0; member < plan_.problem.nodes; ++member) {
          const bool has = members_[at * words_ + member / 64] >> member % 64 & 1;
          const bool wanted = reduces(plan_.problem.what) || starts_in_output(plan_.problem, member, e);
          if (has == wanted) continue;
          return where + (has ? " holds the contribution of node " : " lacks the contribution of node ") +
                 std::to_string(member);
        }
      }
    }
    return "";
  }

  // True if the collective promises `element` in kOutput of `node`.
  bool ends_in_output(int node, uint64_t element) const {
    const auto& offsets = plan_.problem.block_offsets;
    if (plan_.problem.what == Collective::kReduce) return node == plan_.problem.root;
    if (plan_.problem.what != Collective::kReduceScatter) return true;
    return element >= offsets[node] && element < offsets[node + 1];
  }

  const Plan& plan_;
  const Landing landing_;
  std::mt19937_64 random_;
  const size_t words_;
  size_t cells_ = 0;
  std::vector<std::array<size_t, 3>> bases_;  // first cell of each area of each node
  std::vector<int64_t> element_;
  std::vector<uint64_t> members_;  // words_ per cell: whose contributions
  std::vector<size_t> waits_;      // what each step still waits for
  std::vector<uint32_t> ready_;
  std::vector<uint32_t> in_flight_;
  std::string wrong_;
};

}  // namespace

bool starts_in_output(const Problem& problem, int node, uint64_t element) {
  if (problem.what == Collective::kBroadcast) return node == problem.root;
  return problem.what == Collective::kAllGather && element >= problem.block_offsets[node] &&
         element < problem.block_offsets[node + 1];
}

std::string check_values(const Plan& plan, Landing landing, uint64_t seed) {
  return SymbolicRun(plan, landing, seed).run();
}

}  // namespace hdt::collectives
