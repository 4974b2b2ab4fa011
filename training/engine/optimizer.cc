// optimizer.cc: tensor by tensor, so that each takes weight decay or does not.
#include "training/engine/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace hdt::training {

void set_parameters(const TensorState& tensor, ConstTypedSpan whole) {
  convert(whole, tensor.parameters);
  convert(whole.subspan(tensor.first, tensor.master.size()), tensor.master);
}

Optimizer::Optimizer(UnitMemory& memory, const AdamWOptions& options, const std::vector<OwnerSet>& sets,
                     std::span<const BucketShards> buckets, int rank)
    : memory_(memory), options_(options), buckets_(buckets) {
  size_t elements = 0;
  for (const BucketShards& shards : buckets_) {
    moments_.push_back(elements);
    // Shards begin on a cache line, as their parameters do.
    elements += (shards.count + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  }
  first_moment_ = plain_memory(state_type(), elements);
  second_moment_ = plain_memory(state_type(), elements);
  if (has_masters()) master_ = plain_memory(state_type(), elements);
  // Buckets are in the order of backward.
  for (size_t bucket = buckets_.size(); bucket > 0; --bucket) add_tensors(bucket - 1);
  share_out_writing(sets, rank);
}

// A shard is one range of its bucket, so what it has of a tensor is one range, too.
void Optimizer::add_tensors(size_t bucket) {
  const BucketShards& shards = buckets_[bucket];
  const UnitRange units = shards.bucket.units;
  for (int unit = units.first; unit < units.end; ++unit) {
    size_t at = memory_.start(unit) - memory_.start(units.first);
    for (const TensorInfo& tensor : memory_.tensors(unit)) {
      const size_t end = at + tensor.elements();
      const size_t own = std::clamp(shards.first, at, end);
      const size_t count = std::clamp(shards.first + shards.count, own, end) - own;
      // Where this rank has nothing of the tensor, the place of its moments means nothing.
      const size_t moments = count == 0 ? 0 : moments_[bucket] + own - shards.first;
      const TypedSpan parameters = memory_.parameters(units).subspan(at, end - at);
      const TypedSpan updated = parameters.subspan(own - at, count);
      const TypedSpan master = has_masters() ? master_.span().subspan(moments, count) : updated;
      convert(updated, master);
      tensors_.push_back({&tensor, parameters, own - at, master, first_moment_.span().subspan(moments, count),
                          second_moment_.span().subspan(moments, count)});
      places_.push_back({bucket, at, memory_.start(units.first) + at, false});
      at = end;
    }
  }
}

// All owners of a set hold the same tensors of it, so they share them out alike.
void Optimizer::share_out_writing(const std::vector<OwnerSet>& sets, int rank) {
  const auto set_of = [&](size_t tensor) { return buckets_[places_[tensor].bucket].bucket.owner_set; };
  size_t end = 0;
  for (size_t first = 0; first < tensors_.size(); first = end) {
    std::vector<size_t> sizes;
    for (end = first; end < tensors_.size() && set_of(end) == set_of(first); ++end)
      sizes.push_back(tensors_[end].parameters.size());
    const std::vector<int>& owners = sets[set_of(first)].ranks;
    const std::vector<int> writers = share_out(sizes, static_cast<int>(owners.size()));
    for (size_t i = 0; i < sizes.size(); ++i) places_[first + i].written_here = owners[writers[i]] == rank;
  }
}

template <typename T>
void Optimizer::update_piece(const TensorState& tensor, size_t first, size_t count, TypedSpan gradients,
                             int64_t step, double learning_rate, double gradient_scale) const {
  if constexpr (std::is_floating_point_v<T>) {
    std::vector<T> converted;
    std::span<const T> used;
    if (gradients.type() == NumberTypeOf<T>::value) {
      used = gradients.as<T>();
    } else {
      converted.resize(count);
      convert(gradients, converted);
      used = converted;
    }
    const auto part = [&](TypedSpan state) { return state.as<T>().subspan(first, count); };
    adamw_update(AdamWSpan<T>{part(tensor.master), used, part(tensor.exp_avg), part(tensor.exp_avg_sq)},
                 options_, step + 1, learning_rate, gradient_scale, tensor.info->weight_decay);
  } else {
    throw_wrong_type(NumberTypeOf<T>::value, state_type());
  }
}

// In pieces, which are alike whoever works on them. An element's update knows nothing of others.
void Optimizer::update(int64_t step, double learning_rate, double gradient_scale,
                       const ForEachPiece& for_each) {
  struct Piece {
    size_t tensor;
    size_t first;  // of this rank's part of the tensor
    size_t count;
  };
  std::vector<Piece> pieces;
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const size_t size = tensors_[tensor].master.size();
    for (size_t first = 0; first < size; first += kPieceElements)
      pieces.push_back({tensor, first, std::min(kPieceElements, size - first)});
  }
  const TypedSpan parameters = memory_.all_parameters();
  const TypedSpan gradients = memory_.all_gradients();
  for_each(pieces.size(), [&](size_t index) {
    const Piece& piece = pieces[index];
    const TensorState& tensor = tensors_[piece.tensor];
    const size_t start = places_[piece.tensor].start + tensor.first + piece.first;
    with_elements(tensor.master, [&](auto master) {
      update_piece<typename decltype(master)::value_type>(tensor, piece.first, piece.count,
                                                          gradients.subspan(start, piece.count), step,
                                                          learning_rate, gradient_scale);
    });
    if (has_masters())
      convert(tensor.master.subspan(piece.first, piece.count), parameters.subspan(start, piece.count));
  });
}

// A bucket at a time, so that a rank has the states of its own tensors and one bucket more. The order of
// buckets is that of units on every rank, so ranks that share some sets with one and some with another wait
// for nobody who waits for them.
Result<WrittenState> Optimizer::state_to_write(Messenger& messenger) const {
  // What owners keep parts of: the shards, and where a tensor has its part.
  struct Sharded {
    TypedSpan own;
    TypedSpan TensorState::*part;
    TypedMemory whole = {};  // of one bucket
  };
  std::vector<Sharded> states;
  states.push_back({first_moment_.span(), &TensorState::exp_avg});
  states.push_back({second_moment_.span(), &TensorState::exp_avg_sq});
  if (has_masters()) states.push_back({master_.span(), &TensorState::master});

  const auto is_cut = [&](size_t bucket) { return !buckets_[bucket].counts.empty(); };
  WrittenState state;
  size_t gathered = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (places_[i].written_here && is_cut(places_[i].bucket))
      gathered += states.size() * tensors_[i].parameters.size();
  }
  state.gathered = plain_memory(state_type(), gathered);
  size_t free = 0;  // the first element of it that is not in use
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const BucketShards& shards = buckets_[bucket];
    for (Sharded& sharded : states) {
      if (!is_cut(bucket) || shards.elements == 0) break;
      sharded.whole = plain_memory(state_type(), shards.elements);
      convert(sharded.own.subspan(moments_[bucket], shards.count),
              sharded.whole.span().subspan(shards.first, shards.count));
      Result<Pending> started =
          messenger.all_gather_over_owners(shards.bucket.owner_set, sharded.whole.span(), shards.counts);
      if (!started.is_ok()) return started.status();
      HDT_RETURN_IF_ERROR(started.value()->wait());
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!places_[i].written_here || places_[i].bucket != bucket) continue;
      TensorState tensor = tensors_[i];
      const size_t count = tensor.parameters.size();
      if (is_cut(bucket)) {
        tensor.first = 0;
        for (const Sharded& sharded : states) {
          tensor.*sharded.part = state.gathered.span().subspan(free, count);
          convert(sharded.whole.span().subspan(places_[i].element, count), tensor.*sharded.part);
          free += count;
        }
        // Parameters of the states' type are whole on every owner.
        if (!has_masters()) tensor.master = tensor.parameters;
      }
      state.tensors.push_back(tensor);
    }
  }
  return state;
}

std::pair<size_t, size_t> Optimizer::size_to_write() const {
  std::pair<size_t, size_t> size;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!places_[i].written_here) continue;
    ++size.first;
    size.second += tensors_[i].parameters.size() * bytes_of(state_type());
  }
  return size;
}

}  // namespace hdt::training
