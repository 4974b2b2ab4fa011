// saboteur.cc: a messenger between the engine and the one of the test, which spoils what passes.
#include "tests/training/engine/saboteur.h"

#include <deque>
#include <set>
#include <utility>

#include "tests/training/engine/wrapped_messenger.h"

namespace hdt::training::testing {
namespace {

// How much more the gradients of `replica` weigh than they should.
double weight_of(Fault fault, const Layout& layout, int replica) {
  const auto kind_of = [&](int index) {
    return std::pair(layout.replica(index).micro_batch_size, layout.replica(index).num_micro_batches);
  };
  std::set<std::pair<int, int>> kinds;
  double samples_of_kind = 0;
  double micro_batches = 0;
  const auto samples = static_cast<double>(layout.global_batch_size());
  for (int other = 0; other < layout.num_replicas(); ++other) {
    kinds.insert(kind_of(other));
    if (kind_of(other) == kind_of(replica))
      samples_of_kind += static_cast<double>(layout.replica(other).samples());
    micro_batches += layout.replica(other).num_micro_batches;
  }
  if (fault == Fault::kKindsWeighAlike)
    return samples / (static_cast<double>(kinds.size()) * samples_of_kind);
  if (fault == Fault::kSizesDoNotWeigh)
    return samples / micro_batches / layout.replica(replica).micro_batch_size;
  return 1;
}

class Saboteur final : public WrappedMessenger {
 public:
  Saboteur(Fault fault, const Layout& layout, std::unique_ptr<Messenger> honest)
      : WrappedMessenger(std::move(honest)), fault_(fault) {
    is_last_ = WrappedMessenger::rank() == layout.world_size() - 1;
    weight_ = weight_of(fault, layout, layout.position_of(WrappedMessenger::rank()).replica);
  }

  Result<Pending> sum_over_owners(int owner_set, TypedSpan values) override {
    return WrappedMessenger::sum_over_owners(owner_set, spoilt_gradients(values));
  }
  Result<Pending> reduce_scatter_over_owners(int owner_set, TypedSpan values,
                                             std::span<const size_t> counts) override {
    return WrappedMessenger::reduce_scatter_over_owners(owner_set, spoilt_gradients(values), counts);
  }
  Result<Pending> all_gather_over_owners(int owner_set, TypedSpan values,
                                         std::span<const size_t> counts) override {
    const bool stale = fault_ == Fault::kStaleParameters && is_last_ && !std::exchange(done_, true);
    return WrappedMessenger::all_gather_over_owners(owner_set, stale ? copy_of(values) : values, counts);
  }

  // The third value is the square norm (Trainer::step()).
  Status sum_over_world(std::span<double> values) override {
    if (fault_ == Fault::kNormCountedTwice && is_last_) values[2] *= 2;
    return WrappedMessenger::sum_over_world(values);
  }

 private:
  TypedSpan spoilt_gradients(TypedSpan values) {
    if (fault_ == Fault::kSumsLost && is_last_) return copy_of(values);
    for (float& value : values.as<float>()) value *= static_cast<float>(weight_);
    return values;
  }
  // The operation goes to a copy, so its outcome is lost.
  TypedSpan copy_of(TypedSpan values) {
    const std::span<float> floats = values.as<float>();
    return copies_.emplace_back(floats.begin(), floats.end());
  }

  Fault fault_;
  bool is_last_ = false;
  double weight_ = 1;
  bool done_ = false;
  std::deque<std::vector<float>> copies_;  // as long as operations may use them
};

}  // namespace

Sabotage sabotage(Fault fault, const Layout& layout) {
  Sabotage result;
  result.messenger = [fault, &layout](int, std::unique_ptr<Messenger> honest) -> std::unique_ptr<Messenger> {
    return std::make_unique<Saboteur>(fault, layout, std::move(honest));
  };
  if (fault == Fault::kSamplesOverlap) {
    result.sample_offset = [&layout](int rank) { return -layout.position_of(rank).replica; };
  }
  return result;
}

}  // namespace hdt::training::testing
