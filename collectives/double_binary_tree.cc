// double_binary_tree.cc: allreduce, broadcast and reduce over two binary trees (Sanders, Speck, Traeff 2009:
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan"): log2(nodes) deep as any tree, but
// no node's link is idle.
//
// The inner nodes of a binary tree send what they receive twice, its leaves nothing. So the piece is cut into
// two halves, each with a tree of its own, and who is an inner node of one tree is a leaf of the other: all
// send about as much as they receive. The root stands above both trees. Places count from it: place 0 is the
// root, 1 .. nodes - 1 are in the trees.
//
// A tree is in-order over the labels 1 .. size: a label's height is the number of zeros it ends in, so odd
// labels are leaves. The first tree labels place q by q, the second by q + 1 (the last place by 1): even and
// odd trade places.
//
// Halves are cut into chunks, so that the levels of a tree work at the same time within a piece, too.
#include <array>
#include <bit>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// The executor looks at 32 steps ahead: as many as an inner node has of so many chunks.
constexpr uint64_t kMostChunks = 4;

class Tree {
 public:
  Tree(int size, bool second) : size_(size), second_(second) {}

  // The place above, 0 for the top of the tree.
  int parent(int place) const {
    unsigned label = label_of(place);
    if (label == std::bit_floor(size_)) return 0;
    do {  // labels that a full tree would have are passed over
      const unsigned lowest = label & (~label + 1);
      label = (label ^ lowest) | (lowest << 1);
    } while (label > size_);
    return place_of(label);
  }

  std::vector<int> children(int place) const {
    if (place == 0) return {place_of(std::bit_floor(size_))};
    const unsigned label = label_of(place);
    const unsigned lowest = label & (~label + 1);
    const unsigned to_the_right = std::min(lowest - 1, size_ - label);
    std::vector<int> found;
    if (lowest > 1) found.push_back(place_of(label - lowest / 2));
    if (to_the_right > 0) found.push_back(place_of(label + std::bit_floor(to_the_right)));
    return found;
  }

 private:
  unsigned label_of(int place) const {
    return second_ ? static_cast<unsigned>(place) % size_ + 1 : static_cast<unsigned>(place);
  }
  int place_of(unsigned label) const {
    if (!second_) return static_cast<int>(label);
    return static_cast<int>(label == 1 ? size_ : label - 1);
  }

  unsigned size_;
  bool second_;
};

class TreeBuilder {
 public:
  TreeBuilder(const Problem& problem, uint64_t shortest_chunk)
      : problem_(problem),
        place_((problem.me + problem.nodes - problem.root) % problem.nodes),
        trees_{Tree(problem.nodes - 1, false), Tree(problem.nodes - 1, true)},
        chunks_(std::clamp<uint64_t>(problem.elements() / 2 / shortest_chunk, 1, kMostChunks)),
        schedule_(std::make_unique<ListedSchedule>()) {}

  std::unique_ptr<Schedule> build() {
    for (uint64_t part = 0; reduces(problem_.what) && part < 2 * chunks_; ++part) gather(part % 2, part / 2);
    for (uint64_t part = 0; problem_.what != Collective::kReduce && part < 2 * chunks_; ++part) {
      hand_down(part % 2, part / 2);
    }
    return std::move(schedule_);
  }

 private:
  int node_of(int place) const { return (place + problem_.root) % problem_.nodes; }

  Range half(size_t tree) const {
    const uint64_t first = problem_.elements() / 2;
    return tree == 0 ? Range{0, first} : Range{first, problem_.elements() - first};
  }
  Range chunk(size_t tree, uint64_t number) const {
    const Range whole = half(tree);
    const uint64_t begin = whole.length * number / chunks_;
    return {whole.offset + begin, whole.length * (number + 1) / chunks_ - begin};
  }

  // Where in the scratch of `parent` the contribution of `child` lands: the root has a child in each tree,
  // the others have theirs in one tree.
  uint64_t landing(size_t tree, int parent, int child, uint64_t offset) const {
    if (parent == 0) return offset;
    const bool is_second = trees_[tree].children(parent).front() != child;
    return offset - half(tree).offset + (is_second ? half(tree).length : 0);
  }

  void gather(size_t tree, uint64_t number) {
    const Range range = chunk(tree, number);
    Area held = Area::kInput;
    for (const int child : trees_[tree].children(place_)) {
      const Area into = held == Area::kInput ? Area::kOutput : Area::kInput;
      schedule_->add({StepKind::kRecvReduce, node_of(child), held, into, range.offset, range.length,
                      landing(tree, place_, child, range.offset)});
      held = into;
    }
    if (place_ == 0) return;
    const int parent = trees_[tree].parent(place_);
    schedule_->add({StepKind::kSend, node_of(parent), held, Area::kScratch, range.offset, range.length,
                    landing(tree, parent, place_, range.offset)});
  }

  void hand_down(size_t tree, uint64_t number) {
    const Range range = chunk(tree, number);
    if (place_ != 0) {
      const int parent = node_of(trees_[tree].parent(place_));
      schedule_->add({StepKind::kRecv, parent, Area::kInput, Area::kOutput, range.offset, range.length, 0});
    }
    for (const int child : trees_[tree].children(place_)) {
      schedule_->add({StepKind::kSend, node_of(child), Area::kOutput, Area::kOutput, range.offset,
                      range.length, range.offset});
    }
  }

  const Problem& problem_;
  const int place_;
  const std::array<Tree, 2> trees_;
  const uint64_t chunks_;  // of each half
  std::unique_ptr<ListedSchedule> schedule_;
};

}  // namespace

bool has_double_binary_tree(const Problem& problem) {
  const bool has_trees = problem.what == Collective::kAllReduce || problem.what == Collective::kBroadcast ||
                         problem.what == Collective::kReduce;
  return has_trees && problem.nodes > 2;
}

uint64_t double_binary_tree_scratch(const Problem& problem) {
  if (!reduces(problem.what)) return 0;
  // The root has a contribution to either half; from four nodes on, somebody has two to the longer half.
  return problem.elements() + (problem.nodes > 3 ? problem.elements() % 2 : 0);
}

std::unique_ptr<Schedule> make_double_binary_tree(const Problem& problem, uint64_t shortest_chunk) {
  if (!has_double_binary_tree(problem)) return make_halving_doubling(problem);
  return TreeBuilder(problem, shortest_chunk).build();
}

}  // namespace hdt::collectives
