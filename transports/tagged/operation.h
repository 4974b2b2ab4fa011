// operation.h: ids of a channel's operations: what it was, and which.
#pragma once

#include <cstdint>

namespace hdt::transport::tagged {

enum class Operation : uint64_t {
  kFrameSent = 0,
  kFrameReceived = 1,
  kSegmentSent = 2,
  kSegmentReceived = 3
};

inline constexpr int kOperationShift = 62;
inline uint64_t operation_id(Operation operation, uint64_t number) {
  return static_cast<uint64_t>(operation) << kOperationShift | number;
}
inline Operation operation_of(uint64_t id) { return static_cast<Operation>(id >> kOperationShift); }
inline uint64_t number_of(uint64_t id) { return id & ((uint64_t{1} << kOperationShift) - 1); }

}  // namespace hdt::transport::tagged
