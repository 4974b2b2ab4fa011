// model_chunks.h: the computes of one rank: one for each of its ranges of layers (model chunks).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "training/engine/compute.h"

namespace hdt::training {

// The computes of a rank's model chunks, first chunk first. A rank with one range of layers has one. They are
// not owned: the program that made them keeps them as long as whoever it has given this to. A compute stands
// for it where there is one chunk. Used on the trainer's thread.
template <class Compute>
class ChunksOf {
 public:
  // Not explicit: one compute is one chunk.
  ChunksOf(Compute& only) : computes_{&only} {}
  explicit ChunksOf(std::vector<Compute*> computes) : computes_(std::move(computes)) {}
  template <class Derived>
  ChunksOf(const ChunksOf<Derived>& other) : computes_(other.begin(), other.end()) {}

  int size() const { return static_cast<int>(computes_.size()); }
  Compute& operator[](int chunk) const { return *computes_[static_cast<size_t>(chunk)]; }
  auto begin() const { return computes_.begin(); }
  auto end() const { return computes_.end(); }

 private:
  std::vector<Compute*> computes_;
};
using ModelChunks = ChunksOf<StageCompute>;

}  // namespace hdt::training
