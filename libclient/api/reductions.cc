// reductions.cc: makes, finds and applies sums with a factor for each rank.
#include "libclient/api/reductions.h"

#include <cstring>
#include <string>

#include "collectives/kernels.h"

namespace hdt::client {

// The scalar's bytes are kept as they are; `type` says how to read them.
hdtRedOp_t Reductions::add(const void* scalar, hdtDataType_t type) {
  PreMulSum made{type, {}};
  std::memcpy(made.scalar.data(), scalar, hdtTypeSize(type));
  const std::lock_guard lock(mutex_);
  made_.emplace(next_, made);
  return static_cast<hdtRedOp_t>(next_++);
}

Status Reductions::remove(hdtRedOp_t op) {
  const std::lock_guard lock(mutex_);
  if (made_.erase(static_cast<int>(op)) == 1) return Status::ok();
  return {Code::kInvalidArgument, "no reduction " + std::to_string(op) + " was created on this communicator"};
}

// 1. A built-in reduction needs no preparation, but not each combines every type.
// 2. Find the factor.
// 3. Find a place for the product: the scratch, or memory of its own.
// 4. Multiply.
Result<Contribution> Reductions::contribute(hdtRedOp_t op, hdtDataType_t type, const void* send, size_t count,
                                            void* scratch) const {
  const auto internal = static_cast<collectives::DataType>(type);
  if (is_built_in(op)) {
    const Contribution own{static_cast<collectives::ReduceOp>(op), send, nullptr};
    if (can_reduce(type, op)) return own;
    return Status(Code::kInvalidArgument, std::string("reduction ") + name_of(own.op) + " of " +
                                              name_of(internal) +
                                              ": bitwise reductions combine integers only");
  }
  // Copied under the lock, so that the multiplication runs without it.
  PreMulSum made{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(static_cast<int>(op));
    if (found == made_.end())
      return Status(Code::kInvalidArgument, "unknown reduction " + std::to_string(op));
    made = found->second;
  }
  if (made.type != type) {
    return Status(Code::kInvalidArgument, std::string("reduction made for ") +
                                              name_of(static_cast<collectives::DataType>(made.type)) +
                                              ", used with " + name_of(internal));
  }
  // Every rank's call has kPreMulSum, whatever its factor, so that calls compare equal; ranks that pass
  // kSum meet a mismatch.
  Contribution contribution{collectives::ReduceOp::kPreMulSum, scratch, nullptr};
  if (scratch == nullptr) {
    // The shared_ptr of bytes becomes one of void that keeps the array alive.
    const std::shared_ptr<std::byte[]> own(new std::byte[count * collectives::type_size(internal)]);
    contribution.memory = std::shared_ptr<void>(own, own.get());
    contribution.send = own.get();
    scratch = own.get();
  }
  collectives::scale(internal, made.scalar.data(), send, scratch, count);
  return contribution;
}

}  // namespace hdt::client
