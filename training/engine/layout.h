// layout.h: which rank holds what: replicas (data parallel), each cut into its own pipeline stages, and
// how ranks are numbered.
//
// The model is a row of *units* of parameters: the embedding (unit 0), each transformer layer (units 1
// .. num_layers), and the final norm with the output head (unit num_layers + 1). A stage holds one
// consecutive range of units, or several (model chunks, for interleaved 1F1B). A unit is owned by one rank of
// every replica.
//
// A replica of p stages and c chunks has p * c virtual stages, which follow one another in the model. Virtual
// stage v is chunk v / p of stage v % p.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace hdt::training {

// One copy of the model, over several stages.
struct Replica {
  // Transformer layers of each virtual stage, in the order of the model: the first chunks of all stages, then
  // the second ones, and so on.
  std::vector<int> stage_layers;
  int micro_batch_size = 1;   // samples
  int num_micro_batches = 1;  // of one step
  // The ranges of layers of each stage. stage_layers has a multiple of them.
  int chunks = 1;

  int virtual_stages() const { return static_cast<int>(stage_layers.size()); }
  int stages() const { return virtual_stages() / chunks; }
  int64_t samples() const { return int64_t{micro_batch_size} * num_micro_batches; }
};

// How ranks are numbered, the fastest first. kTpDpPp: stage 0 of every replica, then stage 1 of every
// replica that has one, and so on. kTpPpDp: all stages of replica 0, then all of replica 1
// (--use-tp-pp-dp-mapping).
enum class RankOrder { kTpDpPp, kTpPpDp };

// The place of a rank, or of one of its chunks.
struct Position {
  int replica = 0;
  int stage = 0;
  int chunk = 0;
  bool operator==(const Position&) const = default;
};

// Units first .. end - 1.
struct UnitRange {
  int first = 0;
  int end = 0;

  int size() const { return end - first; }
  // All of them, in rising order.
  std::vector<int> numbers() const {
    std::vector<int> all(static_cast<size_t>(size()));
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  bool contains(int unit) const { return first <= unit && unit < end; }
  bool operator==(const UnitRange&) const = default;
};

// The unit of a tied matrix: the embedding's, which the head multiplies with, too. It has one tensor, and a
// replica has it on the ranks of both uses: on one rank, or on the first stage and the last one.
inline constexpr int kTiedUnit = -1;

// The same on all ranks, and not changed once it is made, so any thread may read it. The functions take
// valid indices only.
class Layout {
 public:
  // `replicas` must be consistent: see make_layout (layout_flags.h), which checks and explains.
  Layout(int num_layers, std::vector<Replica> replicas, RankOrder order);
  // The same with a numbering of its own: ranks[r][s] is the rank of stage s of replica r. Each of 0 ..
  // number of stages - 1 must be there once.
  Layout(int num_layers, std::vector<Replica> replicas, std::vector<std::vector<int>> ranks);
  // The same layout of a model whose embedding and head share a matrix (kTiedUnit).
  Layout with_tied_unit() const {
    Layout layout = *this;
    layout.has_tied_unit_ = true;
    return layout;
  }

  int num_layers() const { return num_layers_; }
  // Without the tied unit, if there is one.
  int num_units() const { return num_layers_ + 2; }
  bool has_tied_unit() const { return has_tied_unit_; }
  int embedding_unit() const { return 0; }
  int head_unit() const { return num_layers_ + 1; }
  int num_replicas() const { return static_cast<int>(replicas_.size()); }
  const Replica& replica(int index) const { return replicas_[index]; }
  int world_size() const { return static_cast<int>(positions_.size()); }
  // The samples of one step over all replicas.
  int64_t global_batch_size() const;
  // Replica r takes samples first_sample(r) .. first_sample(r) + replica(r).samples() - 1 of every
  // global batch.
  int64_t first_sample(int replica) const;

  // Whatever the chunk.
  int rank_of(Position position) const { return ranks_[position.replica][position.stage]; }
  // With chunk 0.
  Position position_of(int rank) const { return positions_[rank]; }
  // The units of one chunk of a stage: its layers, and the embedding if it is the first virtual stage, the
  // head if it is the last one.
  UnitRange units_of(Position position) const;
  // Those of each chunk of a rank, first chunk first.
  std::vector<UnitRange> ranges_of(int rank) const;
  // The rank of `replica` that holds `unit`; of the tied unit the first one.
  int owner_of(int unit, int replica) const;
  // All of them: of the tied unit there may be two.
  std::vector<int> owners_of(int unit, int replica) const;

 private:
  int num_layers_;
  bool has_tied_unit_ = false;
  std::vector<Replica> replicas_;
  std::vector<Position> positions_;      // by rank
  std::vector<std::vector<int>> ranks_;  // by replica, stage
};

}  // namespace hdt::training
