// buffer.hpp: the part of hdt.hpp that needs no group: errors, the version, ids of new groups, element types,
// buffers and memory. Programs include hdt.hpp, whose first comment is the manual of both.
#ifndef HDT_BUFFER_HPP
#define HDT_BUFFER_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

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

// Throws Error unless `result` is HDT_SUCCESS. For a program's own calls of hdt.h, in the thread that made
// the call, as the message is the thread's.
inline void check(hdtResult_t result) {
  if (result == HDT_SUCCESS) return;
  const std::string message = hdtGetLastError();
  throw Error(result, message.empty() ? hdtGetErrorString(result) : message);
}

// The version of the library at run time, encoded as HDT_VERSION.
inline int version() {
  int number = 0;
  check(hdtGetVersion(&number));
  return number;
}

// An id for a new group, for Communicator(nranks, id, rank) on each of its ranks (hdtGetUniqueId).
inline hdtUniqueId_t unique_id() {
  hdtUniqueId_t id;
  check(hdtGetUniqueId(&id));
  return id;
}
// The id that this number makes of another one (hdtDeriveUniqueId).
inline hdtUniqueId_t unique_id(const hdtUniqueId_t& base, uint64_t number) {
  hdtUniqueId_t id;
  check(hdtDeriveUniqueId(&id, &base, number));
  return id;
}

// --- element types and buffers --------------------------------------------------------------------------

// The element type of a C++ type, as a static member `value`. May be specialised for types of the program.
template <typename T, typename = void>
struct TypeOf {
  static_assert(!sizeof(T*), "no element type of hdt.h: pass an hdtDataType_t, or specialise hdt::TypeOf");
};
template <>
struct TypeOf<float> : std::integral_constant<hdtDataType_t, HDT_FLOAT32> {};
template <>
struct TypeOf<double> : std::integral_constant<hdtDataType_t, HDT_FLOAT64> {};
template <>
struct TypeOf<std::byte> : std::integral_constant<hdtDataType_t, HDT_UINT8> {};
// By size and sign, as the same integer has several names.
template <typename T>
struct TypeOf<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  // NOLINTNEXTLINE(readability-identifier-naming): as the traits of the standard library have it
  static constexpr hdtDataType_t value = std::is_signed_v<T> ? (sizeof(T) == 1   ? HDT_INT8
                                                                : sizeof(T) == 2 ? HDT_INT16
                                                                : sizeof(T) == 4 ? HDT_INT32
                                                                                 : HDT_INT64)
                                                             : (sizeof(T) == 1   ? HDT_UINT8
                                                                : sizeof(T) == 2 ? HDT_UINT16
                                                                : sizeof(T) == 4 ? HDT_UINT32
                                                                                 : HDT_UINT64);
};

// The name of an element type, such as "float32"; "unknown" for any other number.
inline const char* type_name(hdtDataType_t type) noexcept {
  switch (type) {
    case HDT_INT32:
      return "int32";
    case HDT_INT64:
      return "int64";
    case HDT_FLOAT16:
      return "float16";
    case HDT_BFLOAT16:
      return "bfloat16";
    case HDT_FLOAT32:
      return "float32";
    case HDT_FLOAT64:
      return "float64";
    case HDT_INT8:
      return "int8";
    case HDT_UINT8:
      return "uint8";
    case HDT_INT16:
      return "int16";
    case HDT_UINT16:
      return "uint16";
    case HDT_UINT32:
      return "uint32";
    case HDT_UINT64:
      return "uint64";
    case HDT_FLOAT8E4M3:
      return "float8_e4m3";
    case HDT_FLOAT8E5M2:
      return "float8_e5m2";
  }
  return "unknown";
}

// Elements in memory that somebody else owns: a pointer, a number of elements, and their type. It is made
// where a call needs it, from
//     values                       anything contiguous: a vector, an array, a Memory, a std::span (C++20)
//     {pointer, count}             a pointer to elements of a C++ type
//     {pointer, count, type}       any pointer, and the type by name
//     {}                           nothing: where this rank has no such buffer, as on ranks that are not root
// Copies refer to the same memory.
template <typename Void>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Void* data, size_t count, hdtDataType_t type) noexcept
      : data_(data), count_(count), type_(type), has_type_(true) {}
  template <typename T, std::enable_if_t<std::is_convertible_v<T*, Void*>, int> = 0>
  Buffer(T* data, size_t count) noexcept : Buffer(data, count, TypeOf<std::remove_cv_t<T>>::value) {}
  // A temporary vector can be sent, but nothing can be received into it.
  template <typename Range,
            std::enable_if_t<std::is_convertible_v<decltype(std::data(std::declval<Range>())), Void*> &&
                                 std::is_convertible_v<decltype(std::size(std::declval<Range>())), size_t>,
                             int> = 0>
  Buffer(Range&& range) noexcept : Buffer(std::data(range), std::size(range)) {}
  // A buffer that can be received into can be sent.
  template <typename Other, std::enable_if_t<std::is_const_v<Void> && !std::is_const_v<Other>, int> = 0>
  Buffer(const Buffer<Other>& other) noexcept
      : data_(other.data()), count_(other.count()), type_(other.type()), has_type_(other.has_type()) {}

  Void* data() const noexcept { return data_; }
  // In elements.
  size_t count() const noexcept { return count_; }
  size_t bytes() const noexcept { return count_ * hdtTypeSize(type_); }
  hdtDataType_t type() const noexcept { return type_; }
  // False for {} alone.
  bool has_type() const noexcept { return has_type_; }

 private:
  Void* data_ = nullptr;
  size_t count_ = 0;
  hdtDataType_t type_ = HDT_INT8;
  bool has_type_ = false;
};
using SendBuffer = Buffer<const void>;
using RecvBuffer = Buffer<void>;

// One number for each rank, for the calls whose names end in _v: a vector, an array, a span. The
// numbers are not needed any more when the call has returned.
class PerRank {
 public:
  template <typename Range,
            std::enable_if_t<std::is_convertible_v<decltype(std::data(std::declval<Range>())), const size_t*>,
                             int> = 0>
  PerRank(const Range& range) noexcept : data_(std::data(range)), size_(std::size(range)) {}
  const size_t* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  size_t operator[](size_t rank) const { return data_[rank]; }

 private:
  const size_t* data_;
  size_t size_;
};

// Memory of hdtMemAlloc for `count` elements, zeroed and aligned to 4,096 bytes: the ranks of a node work in
// it directly, and the daemon sends from it. Movable, not copyable; a default-made one is empty. No operation
// may use it any more when it is destroyed, so a Request is to be destroyed, or waited for, before.
template <typename T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 4096, "elements are plain bytes to HDT");

 public:
  Memory() = default;
  explicit Memory(size_t count) : size_(count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T)) {
      throw Error(HDT_ERR_INVALID_ARGUMENT, "Memory: " + std::to_string(count) + " elements are too many");
    }
    void* memory = nullptr;
    check(hdtMemAlloc(&memory, count * sizeof(T)));
    data_ = static_cast<T*>(memory);
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  // Swaps: the memory that this object had is freed when `other` is destroyed.
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Memory() { (void)hdtMemFree(data_); }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  T* begin() noexcept { return data_; }
  const T* begin() const noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* end() const noexcept { return data_ + size_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  // Gives the memory away: the caller frees it by hdtMemFree.
  T* release() noexcept {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hdt

#endif  // HDT_BUFFER_HPP
