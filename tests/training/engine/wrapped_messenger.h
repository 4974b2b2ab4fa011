// wrapped_messenger.h: a messenger that hands every call on to another one. Tests override what they change.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "training/engine/messenger.h"

namespace hdt::training::testing {

// Owns the messenger that it wraps. Used by one rank's thread.
class WrappedMessenger : public Messenger {
 public:
  explicit WrappedMessenger(std::unique_ptr<Messenger> wrapped) : wrapped_(std::move(wrapped)) {}

  int rank() const override { return wrapped_->rank(); }
  int size() const override { return wrapped_->size(); }
  Result<TypedMemory> allocate(NumberType type, size_t elements) override {
    return wrapped_->allocate(type, elements);
  }
  Result<Pending> send_to_stage(int stage, ConstTypedSpan values) override {
    return wrapped_->send_to_stage(stage, values);
  }
  Result<Pending> receive_from_stage(int stage, TypedSpan values) override {
    return wrapped_->receive_from_stage(stage, values);
  }
  Status broadcast_in_replica(int stage, std::span<int64_t> values) override {
    return wrapped_->broadcast_in_replica(stage, values);
  }
  Result<Pending> sum_over_owners(int owner_set, TypedSpan values) override {
    return wrapped_->sum_over_owners(owner_set, values);
  }
  Result<Pending> reduce_scatter_over_owners(int owner_set, TypedSpan values,
                                             std::span<const size_t> counts) override {
    return wrapped_->reduce_scatter_over_owners(owner_set, values, counts);
  }
  Result<Pending> all_gather_over_owners(int owner_set, TypedSpan values,
                                         std::span<const size_t> counts) override {
    return wrapped_->all_gather_over_owners(owner_set, values, counts);
  }
  Status sum_over_world(std::span<double> values) override { return wrapped_->sum_over_world(values); }
  Status max_over_world(std::span<double> values) override { return wrapped_->max_over_world(values); }

 private:
  std::unique_ptr<Messenger> wrapped_;
};

}  // namespace hdt::training::testing
