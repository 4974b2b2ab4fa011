// double_binary_tree.cc: allreduce, broadcast and reduce over two binary trees (Sanders, Speck, Traeff
// 2009: "Two-tree algorithms for full bandwidth broadcast, reduction and scan"). The trees are as deep
// as any binary tree, log2(nodes), but no node's link is idle.
//
// In one binary tree the inner nodes send twice what they receive, and the leaves send nothing. So the
// chunk is cut into two halves, each with a tree of its own, and a node that is an inner node of one tree
// is a leaf of the other: all nodes send about as much as they receive. The root of the operation stands
// above both trees. Places count from it: place 0 is the root, places 1 .. nodes - 1 are in the trees.
//
// A tree is in-order over the labels 1 .. size. A label's height is the number of zeros in which it
// ends, so odd labels are leaves. The first tree gives place q the label q, the second the label q + 1
// (the last place gets 1), so even and odd labels are exchanged.
//
// Halves are cut into parts (kMostChunks, chunk()), so that the levels of a tree work at the same time
// within one chunk of the operation, too.
#include <array>
#include <bit>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// The maximum number of parts of a half. The executor looks 32 steps ahead, and an inner node has about
// as many for so many parts.
constexpr uint64_t kMostChunks = 4;

// One of the two trees: the parent and the children of each place.
class Tree {
 public:
  Tree(int size, bool second) : size_(size), second_(second) {}

  // The place above, 0 for the top of the tree. In an in-order tree the parent of a label is found by
  // clearing its lowest set bit and setting the next one. The tree may not be full: labels beyond its
  // size are passed over, and the search goes on from there.
  int parent(int place) const {
    unsigned label = label_of(place);
    if (label == std::bit_floor(size_)) return 0;
    do {  // labels that a full tree would have are passed over
      const unsigned lowest = label & (~label + 1);
      label = (label ^ lowest) | (lowest << 1);
    } while (label > size_);
    return place_of(label);
  }

  // The places below, left before right. Place 0 has one child, the top of the tree. The left child of a
  // label is lowest / 2 below it. On the right up to lowest - 1 labels follow, fewer at the end of the
  // tree; the child is the top of the tree that these make.
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
  // The label of a place (not 0), and back. The second tree's labels are shifted by one.
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

// Builds the list of one node. Lives during make_double_binary_tree() only.
class TreeBuilder {
 public:
  TreeBuilder(const Problem& problem, uint64_t shortest_chunk)
      : problem_(problem),
        place_((problem.me + problem.nodes - problem.root) % problem.nodes),
        trees_{Tree(problem.nodes - 1, false), Tree(problem.nodes - 1, true)},
        chunks_(std::clamp<uint64_t>(problem.elements() / 2 / shortest_chunk, 1, kMostChunks)),
        schedule_(std::make_unique<ListedSchedule>()) {}

  // Parts of both trees take turns, so that both trees fill at the same time. Everything goes up before
  // anything comes down, in the list; the executor may overlap them.
  std::unique_ptr<Schedule> build() {
    for (uint64_t part = 0; reduces(problem_.what) && part < 2 * chunks_; ++part) gather(part % 2, part / 2);
    for (uint64_t part = 0; problem_.what != Collective::kReduce && part < 2 * chunks_; ++part) {
      hand_down(part % 2, part / 2);
    }
    return std::move(schedule_);
  }

 private:
  int node_of(int place) const { return (place + problem_.root) % problem_.nodes; }

  // The half of the chunk that goes over a tree.
  Range half(size_t tree) const {
    const uint64_t first = problem_.elements() / 2;
    return tree == 0 ? Range{0, first} : Range{first, problem_.elements() - first};
  }
  // Part `number` of a half; parts differ by at most one element.
  Range chunk(size_t tree, uint64_t number) const {
    const Range whole = half(tree);
    const uint64_t begin = whole.length * number / chunks_;
    return {whole.offset + begin, whole.length * (number + 1) / chunks_ - begin};
  }

  // Where in the scratch of `parent` the contribution of `child` lands. The root has one child in each
  // tree, so its two contributions are at their own offsets. Every other place is an inner node of one
  // tree only and has up to two children there: the second one's half follows the first one's.
  uint64_t landing(size_t tree, int parent, int child, uint64_t offset) const {
    if (parent == 0) return offset;
    const bool is_second = trees_[tree].children(parent).front() != child;
    return offset - half(tree).offset + (is_second ? half(tree).length : 0);
  }

  // Up: combines what the children send with the own contribution, and sends the result to the parent.
  // The held value changes sides with each contribution.
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

  // Down: receives the result from the parent and passes it on.
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

// The root has a contribution to either half: elements() in all. From four nodes on, some node has two
// children in the tree of the longer half, which is one element more if elements() is odd.
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
