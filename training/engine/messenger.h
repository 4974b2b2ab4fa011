// messenger.h: how the ranks of a run exchange data, as the engine sees it. Implementations: libhdt
// (hdt_messenger.h), threads of one process (tests).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "training/numbers/number_type.h"

namespace hdt::training {

// An operation under way. Its buffer must stay valid until wait() has returned or the object is
// destroyed. If it is destroyed without wait(), the whole run is given up: other members see a failure.
class Operation {
 public:
  virtual ~Operation() = default;
  // Ends with the operation, or with a failure at the latest at the group's deadline. To be called once.
  virtual Status wait() = 0;
};
using Pending = std::unique_ptr<Operation>;

// Waits for an operation, if there is one. Called before a buffer is written again.
inline Status settle(Pending& operation) {
  if (!operation) return Status::ok();
  const Pending finished = std::move(operation);
  return finished->wait();
}

// One rank's end. Used by one thread, but for abort(). Calls that return a Status block; calls that return a
// Pending have only begun when they return. After a failure the run is over: no function may be expected to
// work.
class Messenger {
 public:
  virtual ~Messenger() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Zeroed memory for so many elements, of the kind from which messages are fastest.
  virtual Result<TypedMemory> allocate(NumberType type, size_t elements) = 0;

  // Between the stages of this rank's replica. The n-th send to a stage matches that stage's n-th
  // receive from this one, and both must have the same type and length.
  virtual Result<Pending> send_to_stage(int stage, ConstTypedSpan values) = 0;
  virtual Result<Pending> receive_from_stage(int stage, TypedSpan values) = 0;
  // Copies the values of `stage` to the other stages. All stages of the replica call it.
  virtual Status broadcast_in_replica(int stage, std::span<int64_t> values) = 0;

  // Sums in place over the ranks of the owner set with that index. Members of a set call it in the same
  // order for that set, with the same type and length. Each sum is rounded to the type of the values.
  virtual Result<Pending> sum_over_owners(int owner_set, TypedSpan values) = 0;
  // The same with a part for each member, in the order of the set's ranks: member i's part has counts[i]
  // values and follows those of the members before it. The counts are the same on all members, their sum is
  // that of the values, and 0 is allowed. They are not needed after the call has returned.
  //
  // Reduce-scatter: each member gets the sums of its own part, in place. What becomes of the values of other
  // parts is not specified.
  virtual Result<Pending> reduce_scatter_over_owners(int owner_set, TypedSpan values,
                                                     std::span<const size_t> counts) = 0;
  // Allgather: each member's part replaces what the other members have in its place.
  virtual Result<Pending> all_gather_over_owners(int owner_set, TypedSpan values,
                                                 std::span<const size_t> counts) = 0;

  // In place, over all ranks, which all call it.
  virtual Status sum_over_world(std::span<double> values) = 0;
  virtual Status max_over_world(std::span<double> values) = 0;

  // Ends this rank's operations but those over the world, and so those of the ranks that wait for it. Any
  // thread, while another one is in an operation.
  virtual void abort() {}
};

// The lowest rank that says yes, on all ranks; -1 if there is none. All ranks call it.
Result<int> lowest_rank_with(bool mine, Messenger& messenger);

}  // namespace hdt::training
