// hdt.hpp: C++ handles over hdt.h. A Communicator and a Request own what they name; failures are
// exceptions that carry the code. Header-only; the calls, their rules, units, errors and thread safety
// are those of hdt.h. Counts are in elements of the pointers' type.
//
// All functions throw Error if the call fails, except for destructors, moves and those that say
// otherwise. A call that throws has not begun an operation, or its operation has ended.
#ifndef HDT_HDT_HPP
#define HDT_HDT_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hdt/hdt.h"

namespace hdt {

// A failed call: what() is the text of hdtGetLastError(), code() the hdtResult_t.
class Error : public std::runtime_error {
 public:
  Error(hdtResult_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  hdtResult_t code() const noexcept { return code_; }

 private:
  hdtResult_t code_;
};

// Throws Error unless `result` is HDT_SUCCESS. For results of calls of hdt.h that have no function here;
// in the thread that made the call, as the message is the thread's.
inline void check(hdtResult_t result) {
  if (result == HDT_SUCCESS) return;
  const std::string message = hdtGetLastError();
  throw Error(result, message.empty() ? hdtGetErrorString(result) : message);
}

// The element type of a C++ type.
template <typename T>
// The element type of a C++ type, as a static member `value`. C++ has no types for the 16-bit and 8-bit
// floats: use hdt.h for them.
struct TypeOf;
template <>
struct TypeOf<int32_t> : std::integral_constant<hdtDataType_t, HDT_INT32> {};
template <>
struct TypeOf<int64_t> : std::integral_constant<hdtDataType_t, HDT_INT64> {};
template <>
struct TypeOf<int8_t> : std::integral_constant<hdtDataType_t, HDT_INT8> {};
template <>
struct TypeOf<uint8_t> : std::integral_constant<hdtDataType_t, HDT_UINT8> {};
template <>
struct TypeOf<int16_t> : std::integral_constant<hdtDataType_t, HDT_INT16> {};
template <>
struct TypeOf<uint16_t> : std::integral_constant<hdtDataType_t, HDT_UINT16> {};
template <>
struct TypeOf<uint32_t> : std::integral_constant<hdtDataType_t, HDT_UINT32> {};
template <>
struct TypeOf<uint64_t> : std::integral_constant<hdtDataType_t, HDT_UINT64> {};
template <>
struct TypeOf<float> : std::integral_constant<hdtDataType_t, HDT_FLOAT32> {};
template <>
struct TypeOf<double> : std::integral_constant<hdtDataType_t, HDT_FLOAT64> {};

// An operation under way. Movable, not copyable; a default-made one names no operation and counts as
// complete. One thread at a time may use it. The destructor waits until the operation has ended, as its
// buffers must not go away before that; a failure is then dropped, so call wait() if it matters.
class Request {
 public:
  Request() = default;
  // Takes over a request of hdt.h.
  explicit Request(hdtRequest_t request) : request_(request) {}
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  // Swaps: the operation that this object had is waited for when `other` is destroyed.
  Request& operator=(Request&& other) noexcept {
    std::swap(request_, other.request_);
    return *this;
  }
  ~Request() {
    if (request_ != nullptr) (void)hdtWait(&request_, -1);
  }
  // Returns when the operation is complete; throws if it has failed.
  void wait() { check(hdtWait(&request_, -1)); }
  // False if it is not complete after timeout_ms; the operation then goes on. Negative: as wait().
  bool wait_for(int64_t timeout_ms) {
    const hdtResult_t result = hdtWait(&request_, timeout_ms);
    // A communicator that has failed at its own deadline gives the same code, but frees the request.
    if (result == HDT_ERR_TIMEOUT && request_ != nullptr) return false;
    check(result);
    return true;
  }
  // Whether it is complete. Does not wait.
  bool test() {
    const hdtResult_t result = hdtTest(&request_);
    if (result == HDT_IN_PROGRESS) return false;
    check(result);
    return true;
  }

 private:
  hdtRequest_t request_ = nullptr;
};

// A rank's membership in a group. Movable, not copyable. The destructor leaves the group, and waits for
// this rank's operations before (hdtCommDestroy). Any thread may call the const functions and the
// operations, under the rules of hdt.h.
class Communicator {
 public:
  // The group of this job (hdtCommInit). Blocks until all ranks have joined.
  explicit Communicator(const hdtCommConfig_t* config = nullptr) { check(hdtCommInit(&comm_, config)); }
  // The group of an id of hdtGetUniqueId (hdtCommInitRank).
  Communicator(int nranks, const hdtUniqueId_t& id, int rank, const hdtCommConfig_t* config = nullptr) {
    check(hdtCommInitRank(&comm_, nranks, id, rank, config));
  }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  // Swaps: the group that this object had is left when `other` is destroyed.
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() { (void)hdtCommDestroy(comm_); }

  // The handle, for calls of hdt.h; it stays this object's.
  hdtComm_t get() const { return comm_; }
  int rank() const { return number(hdtCommUserRank); }
  int size() const { return number(hdtCommCount); }
  int nodes() const { return number(hdtCommNodes); }

  // Collective over the group (hdtCommSplit). Nothing for a rank that passes HDT_SPLIT_NO_COLOR.
  std::optional<Communicator> split(int color, int key, const hdtCommConfig_t* config = nullptr) {
    hdtComm_t made = nullptr;
    check(hdtCommSplit(comm_, color, key, &made, config));
    if (made == nullptr) return std::nullopt;
    return Communicator(made);
  }
  // A group of all ranks except for `excluded` (hdtCommShrink); every rank that is not in it calls this.
  // Works if the group has failed, too.
  Communicator shrink(const std::vector<int>& excluded, const hdtCommConfig_t* config = nullptr) {
    hdtComm_t made = nullptr;
    check(hdtCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &made, config));
    return Communicator(made);
  }
  // Ends all operations of the group with HDT_ERR_ABORTED, on every rank.
  void abort() { check(hdtCommAbort(comm_)); }

  // Operations. Those without a Request return when they are complete, or at once inside hdtGroupStart.
  // The others return at once, and their buffers must stay valid and untouched until the Request has
  // ended.
  template <typename T>
  void all_reduce(const T* send, T* recv, size_t count, hdtRedOp_t op = HDT_SUM) {
    check(hdtAllReduce(send, recv, count, TypeOf<T>::value, op, comm_, nullptr));
  }
  template <typename T>
  Request all_reduce_async(const T* send, T* recv, size_t count, hdtRedOp_t op = HDT_SUM) {
    hdtRequest_t request = nullptr;
    check(hdtAllReduce(send, recv, count, TypeOf<T>::value, op, comm_, &request));
    return Request(request);
  }
  // In place: `data` is read on the root and written on the other ranks.
  template <typename T>
  void broadcast(T* data, size_t count, int root) {
    check(hdtBroadcast(data, data, count, TypeOf<T>::value, root, comm_, nullptr));
  }
  // `send` has `count` elements, `recv` size() * count.
  template <typename T>
  void all_gather(const T* send, T* recv, size_t count) {
    check(hdtAllGather(send, recv, count, TypeOf<T>::value, comm_, nullptr));
  }
  // `send` has size() * count elements, `recv` `count`.
  template <typename T>
  void reduce_scatter(const T* send, T* recv, size_t count, hdtRedOp_t op = HDT_SUM) {
    check(hdtReduceScatter(send, recv, count, TypeOf<T>::value, op, comm_, nullptr));
  }
  // Point to point: messages between two ranks match in call order.
  template <typename T>
  Request send_async(const T* data, size_t count, int peer) {
    hdtRequest_t request = nullptr;
    check(hdtSend(data, count, TypeOf<T>::value, peer, comm_, &request));
    return Request(request);
  }
  template <typename T>
  Request recv_async(T* data, size_t count, int peer) {
    hdtRequest_t request = nullptr;
    check(hdtRecv(data, count, TypeOf<T>::value, peer, comm_, &request));
    return Request(request);
  }
  void barrier() { check(hdtBarrier(comm_, nullptr)); }

 private:
  // Takes over a handle of hdt.h.
  explicit Communicator(hdtComm_t comm) : comm_(comm) {}
  // One of the calls that return a number.
  int number(hdtResult_t (*ask)(hdtComm_t, int*)) const {
    int value = 0;
    check(ask(comm_, &value));
    return value;
  }
  hdtComm_t comm_ = nullptr;
};

}  // namespace hdt

#endif  // HDT_HDT_HPP
