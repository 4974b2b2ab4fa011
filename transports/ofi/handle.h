// handle.h: an owned object of libfabric, and libfabric's errors as Status.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace hdt::transport::ofi {

// T is a libfabric object whose first member is `fid`. The destructor closes the object; an error of that
// is ignored, as nothing can be done about it.
template <typename T>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Handle() { reset(); }
  void reset() {
    if (object_ != nullptr) fi_close(&std::exchange(object_, nullptr)->fid);
  }
  T* get() const { return object_; }
  // For the functions that make objects; the handle must be empty.
  T** out() { return &object_; }

 private:
  T* object_ = nullptr;
};

// kLink, with the text of libfabric. `error` as libfabric returns it: negative.
inline Status from_fi_error(const std::string& what, ssize_t error) {
  return {Code::kLink, what + ": " + fi_strerror(static_cast<int>(-error))};
}

}  // namespace hdt::transport::ofi
