// messenger.h: how the ranks of a run talk to each other, as the engine sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"

namespace hdt::training {

// An operation under way. Its buffer must stay valid until wait() has returned or the object is gone.
// Destroying it without wait() gives the whole run up: other members see a failure.
class Operation {
 public:
  virtual ~Operation() = default;
  // Ends with the operation, or with a failure at the latest at the group's deadline.
  virtual Status wait() = 0;
};
using Pending = std::unique_ptr<Operation>;

// Memory for parameters, gradients and activations.
using FloatMemory = std::unique_ptr<float[], std::function<void(float*)>>;

class Messenger {
 public:
  virtual ~Messenger() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Zeroed, in the kind of memory that messages are fastest from.
  virtual Result<FloatMemory> allocate(size_t elements) = 0;

  // Between the stages of this rank's replica. The n-th send to a stage matches its n-th receive from this
  // one.
  virtual Result<Pending> send_to_stage(int stage, std::span<const float> values) = 0;
  virtual Result<Pending> receive_from_stage(int stage, std::span<float> values) = 0;
  // All stages of the replica call it; `stage`'s values reach the others.
  virtual Status broadcast_in_replica(int stage, std::span<int64_t> values) = 0;

  // In place, over the ranks of the owner set of that index. Members of a set call it in the same order for
  // that set.
  virtual Result<Pending> sum_over_owners(int owner_set, std::span<float> values) = 0;

  // In place, over all ranks.
  virtual Status sum_over_world(std::span<double> values) = 0;
  virtual Status max_over_world(std::span<double> values) = 0;
};

}  // namespace hdt::training
