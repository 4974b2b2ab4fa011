// optimizer.cc: tensor by tensor, so that each takes weight decay or does not.
#include "training/engine/optimizer.h"

#include <algorithm>
#include <array>

namespace hdt::training {

Optimizer::Optimizer(UnitMemory& memory, const AdamWOptions& options, const std::vector<OwnerSet>& sets,
                     std::span<const BucketShards> buckets, int rank)
    : memory_(memory), options_(options), buckets_(buckets) {
  size_t elements = 0;
  for (const BucketShards& shards : buckets_) {
    moments_.push_back(elements);
    // Shards begin on a cache line, as their parameters do.
    elements += (shards.count + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  }
  first_moment_.resize(elements);
  second_moment_.resize(elements);
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
      tensors_.push_back({&tensor, memory_.parameters(units).subspan(at, end - at), own - at,
                          std::span(first_moment_).subspan(moments, count),
                          std::span(second_moment_).subspan(moments, count)});
      places_.push_back({bucket, at, false});
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

void Optimizer::update(int64_t step, double learning_rate, double gradient_scale) {
  const std::span<float> parameters = memory_.all_parameters();
  for (const TensorState& tensor : tensors_) {
    const size_t at = tensor.parameters.data() - parameters.data() + tensor.first;
    const size_t count = tensor.exp_avg.size();
    adamw_update({parameters.subspan(at, count), memory_.all_gradients().subspan(at, count), tensor.exp_avg,
                  tensor.exp_avg_sq},
                 options_, step + 1, static_cast<float>(learning_rate), static_cast<float>(gradient_scale),
                 tensor.info->weight_decay);
  }
}

// A bucket at a time, so that a rank has the moments of its own tensors and one bucket more. The order of
// buckets is that of units on every rank, so ranks that share some sets with one and some with another wait
// for nobody who waits for them.
Result<WrittenState> Optimizer::state_to_write(Messenger& messenger) const {
  const auto is_cut = [&](size_t bucket) { return !buckets_[bucket].counts.empty(); };
  WrittenState state;
  size_t gathered = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (places_[i].written_here && is_cut(places_[i].bucket)) gathered += 2 * tensors_[i].parameters.size();
  }
  state.gathered = std::make_unique<float[]>(gathered);
  float* free = state.gathered.get();
  // The moments of one bucket, whole.
  std::array<std::vector<float>, 2> moments;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const BucketShards& shards = buckets_[bucket];
    for (size_t m = 0; m < moments.size() && is_cut(bucket); ++m) {
      moments[m].resize(shards.elements);
      const std::span<const float> own(m == 0 ? first_moment_ : second_moment_);
      std::ranges::copy(own.subspan(moments_[bucket], shards.count), moments[m].begin() + shards.first);
      Result<Pending> started =
          messenger.all_gather_over_owners(shards.bucket.owner_set, moments[m], shards.counts);
      if (!started.is_ok()) return started.status();
      HDT_RETURN_IF_ERROR(started.value()->wait());
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!places_[i].written_here || places_[i].bucket != bucket) continue;
      TensorState tensor = tensors_[i];
      if (is_cut(bucket)) {
        const size_t count = tensor.parameters.size();
        tensor.first = 0;
        for (auto& [whole, written] :
             {std::pair{&moments[0], &tensor.exp_avg}, {&moments[1], &tensor.exp_avg_sq}}) {
          std::copy_n(whole->begin() + places_[i].element, count, free);
          *written = {free, count};
          free += count;
        }
      }
      state.tensors.push_back(tensor);
    }
  }
  return state;
}

}  // namespace hdt::training
