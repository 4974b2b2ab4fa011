// brute_run.cc: see brute_run.h. Sums of random 64-bit numbers, memory that starts as garbage.
#include "tests/unit/collectives/brute_run.h"

#include <algorithm>
#include <random>

namespace hdt::collectives::testing {
namespace {

enum class Phase { kWaiting, kInFlight, kOver };

struct Node {
  std::vector<uint64_t> area[3];
  std::vector<Phase> phase;
  std::vector<std::vector<bool>> arrived;  // by peer and tag
  bool started = false;
};

class BruteRun {
 public:
  BruteRun(const std::vector<StepList>& lists, const Problem& problem, uint64_t seed)
      : lists_(lists), problem_(problem), random_(seed), nodes_(lists.size()) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const uint64_t sizes[] = {problem.elements(), problem.elements(), lists[n].scratch_length};
      for (int a = 0; a < 3; ++a) {
        nodes_[n].area[a].resize(sizes[a]);
        for (uint64_t& value : nodes_[n].area[a]) value = random_();
      }
      nodes_[n].phase.assign(lists[n].steps.size(), Phase::kWaiting);
      nodes_[n].arrived.assign(lists.size(), std::vector<bool>(64));
      for (const Step& step : lists[n].steps) broken_ |= step.length > problem.elements();
      own_.push_back(nodes_[n].area[reduces(problem.what) ? 0 : 1]);
    }
  }

  bool run() {
    do {
      for (size_t idle = 0; !broken_ && idle < 200;) {
        idle = act() ? 0 : idle + 1;
        if (over()) return !broken_ && right();
      }
    } while (!broken_ && act_anywhere());
    return false;
  }

 private:
  // A random step of a random node, or nothing if that one cannot be taken now.
  bool act() {
    const size_t n = random_() % nodes_.size();
    Node& node = nodes_[n];
    if (!node.started) return node.started = random_() % 4 == 0;
    return !node.phase.empty() && act(n, random_() % node.phase.size());
  }

  // Tries each step, so that chance does not take a list for stuck whose only possible step it did not draw.
  bool act_anywhere() {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!nodes_[n].started) return nodes_[n].started = true;
      for (size_t i = 0; i < nodes_[n].phase.size(); ++i) {
        if (act(n, i)) return true;
      }
    }
    return false;
  }

  bool act(size_t n, size_t i) {
    Node& node = nodes_[n];
    if (node.phase[i] == Phase::kInFlight) return land(n, i);
    if (node.phase[i] == Phase::kOver || blocked(n, i)) return false;
    const Step& step = lists_[n].steps[i];
    if (step.kind == StepKind::kSend) {
      node.phase[i] = Phase::kInFlight;
      return true;
    }
    const bool receives = step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
    const bool combines = step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce;
    if (receives && !(step.peer >= 0 && step.peer < problem_.nodes && node.arrived[step.peer][tag(n, i)]))
      return false;
    node.phase[i] = Phase::kOver;
    for (uint64_t e = 0; e < step.length && step.kind != StepKind::kRecv; ++e) {
      uint64_t value = get(n, step.from, step.offset + e);
      for (uint64_t c = 0; combines && c < contributions(step); ++c)
        value += get(n, Area::kScratch, step.target + c * step.length + e);
      if (uint64_t* to = place(n, step.to, written(step) + e)) *to = value;
    }
    return true;
  }

  bool land(size_t n, size_t i) {
    const Step& step = lists_[n].steps[i];
    if (step.peer < 0 || step.peer >= problem_.nodes) return !(broken_ = true);
    for (uint64_t e = 0; e < step.length; ++e) {
      const uint64_t value = get(n, step.from, step.offset + e);
      if (uint64_t* to = place(step.peer, step.to, step.target + e)) *to = value;
    }
    nodes_[step.peer].arrived[n][tag(n, i)] = true;
    nodes_[n].phase[i] = Phase::kOver;
    return true;
  }

  uint64_t* place(size_t n, Area area, uint64_t at) {
    auto& values = nodes_[n].area[static_cast<int>(area)];
    if (at < values.size()) return &values[at];
    broken_ = true;
    return nullptr;
  }
  uint64_t get(size_t n, Area area, uint64_t at) {
    const uint64_t* from = place(n, area, at);
    return from == nullptr ? 0 : *from;
  }

  size_t tag(size_t n, size_t i) const {
    const auto& steps = lists_[n].steps;
    return std::count_if(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(i), [&](const Step& s) {
      return s.peer == steps[i].peer && (s.kind == StepKind::kSend) == (steps[i].kind == StepKind::kSend);
    });
  }

  // How many contributions it combines with its own.
  static uint64_t contributions(const Step& step) {
    return step.kind == StepKind::kReduce ? static_cast<uint64_t>(step.gathered) : 1;
  }
  // Where a step writes its first element.
  static uint64_t written(const Step& step) { return step.to == Area::kScratch ? step.target : step.offset; }
  static bool reads(const Step& step, Area area, uint64_t at) {
    if (step.kind == StepKind::kReduce && area == Area::kScratch &&
        at - step.target < contributions(step) * step.length) {
      return true;
    }
    return step.kind != StepKind::kRecv && area == step.from && at - step.offset < step.length;
  }
  static bool writes(const Step& step, Area area, uint64_t at) {
    return step.kind != StepKind::kSend && area == step.to && at - written(step) < step.length;
  }

  // Element by element: does an earlier step that is not over touch what this one writes, or write what it
  // reads?
  bool blocked(size_t n, size_t i) const {
    const Step& later = lists_[n].steps[i];
    for (size_t j = 0; j < i; ++j) {
      const Step& earlier = lists_[n].steps[j];
      if (nodes_[n].phase[j] == Phase::kOver) continue;
      if (later.length == 0 && later.kind == StepKind::kSend && earlier.kind == StepKind::kRecv) return true;
      for (uint64_t e = 0; e < later.length; ++e) {
        const uint64_t to = written(later) + e;
        if (later.kind != StepKind::kSend &&
            (writes(earlier, later.to, to) || reads(earlier, later.to, to))) {
          return true;
        }
        if (later.kind != StepKind::kRecv && writes(earlier, later.from, later.offset + e)) return true;
        for (uint64_t c = 0; later.kind == StepKind::kReduce && c < contributions(later); ++c) {
          if (writes(earlier, Area::kScratch, later.target + c * later.length + e)) return true;
        }
      }
    }
    return false;
  }

  // Also looks whether a barrier lets a node end while another has not started.
  bool over() {
    bool all = true;
    bool all_started = true;
    bool any_passed = false;
    for (const Node& node : nodes_) {
      const bool passed = node.started && std::all_of(node.phase.begin(), node.phase.end(),
                                                      [](Phase p) { return p == Phase::kOver; });
      all &= passed;
      any_passed |= passed;
      all_started &= node.started;
    }
    if (problem_.what == Collective::kBarrier && any_passed && !all_started) broken_ = true;
    return all;
  }

  bool right() const {
    for (int n = 0; n < problem_.nodes; ++n) {
      for (int owner = 0; owner < problem_.nodes; ++owner) {
        if (problem_.what == Collective::kReduce && n != problem_.root) continue;
        if (problem_.what == Collective::kReduceScatter && n != owner) continue;
        for (uint64_t e = problem_.block_offsets[owner]; e < problem_.block_offsets[owner + 1]; ++e) {
          uint64_t expected = 0;
          if (problem_.what == Collective::kBroadcast) expected = own_[problem_.root][e];
          if (problem_.what == Collective::kAllGather) expected = own_[owner][e];
          if (reduces(problem_.what)) {
            for (const auto& contribution : own_) expected += contribution[e];
          }
          if (nodes_[n].area[1][e] != expected) return false;
        }
      }
    }
    return true;
  }

  const std::vector<StepList>& lists_;
  const Problem& problem_;
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::vector<std::vector<uint64_t>> own_;  // what each node brings
  bool broken_ = false;
};

}  // namespace

bool solves(const std::vector<StepList>& lists, const Problem& problem, uint64_t seed) {
  return BruteRun(lists, problem, seed).run();
}

}  // namespace hdt::collectives::testing
