// operation.h: the ids of a data path's operations. The two upper bits are the kind, and the rest is the
// number of the frame or segment.
#pragma once

#include <cstdint>

namespace hdt::transport::tagged {

// The operation that was started. Frames and segments are numbered for each direction by itself.
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
