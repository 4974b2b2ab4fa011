// handles.h: what the opaque pointers of hdt.h stand for, and how the calls of the C interface find it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "libclient/api/handle_table.h"
#include "libclient/api/reductions.h"
#include "libclient/group/communicator.h"

struct hdtComm {
  std::shared_ptr<hdt::client::Communicator> communicator;
  hdt::client::Reductions reductions;
  std::mutex error_mutex;
  std::string error_text;  // what hdtCommErrorMessage returned

  explicit hdtComm(std::shared_ptr<hdt::client::Communicator> made) : communicator(std::move(made)) {}
  // Before anybody knows it.
  hdtComm(hdtComm&& other) noexcept : communicator(std::move(other.communicator)) {}
};

namespace hdt::client {

// What one call of the C interface has posted: usually one operation; several, where a call is made of
// others.
struct Posting {
  std::vector<std::shared_ptr<Operation>> operations;
  std::shared_ptr<void> memory;  // that the operations use and the caller did not give
};

}  // namespace hdt::client

struct hdtRequest {
  std::shared_ptr<hdt::client::Communicator> communicator;
  hdt::client::Posting posting;

  bool done() const {
    return std::all_of(posting.operations.begin(), posting.operations.end(),
                       [](const auto& operation) { return operation->done(); });
  }
};

namespace hdt::client {

using CommTable = HandleTable<hdtComm, 1>;
using RequestTable = HandleTable<hdtRequest, 2>;
inline constinit CommTable communicators;
inline constinit RequestTable requests;

inline hdtComm_t make_handle(std::shared_ptr<Communicator> communicator) {
  return reinterpret_cast<hdtComm_t>(communicators.make(hdtComm(std::move(communicator))));
}

// The communicator of a handle, which stays for as long as this does.
class CommRef {
 public:
  explicit CommRef(hdtComm_t handle)
      : ref_(communicators.find(reinterpret_cast<uintptr_t>(handle))), null_(handle == nullptr) {}
  bool valid() const { return static_cast<bool>(ref_); }
  // Why it is not valid.
  Status status() const {
    if (valid()) return Status::ok();
    return {Code::kInvalidArgument,
            null_ ? "comm is null" : "comm is no communicator: it has been destroyed, or was never made"};
  }
  hdtComm* operator->() const { return ref_.operator->(); }
  // True for one caller.
  bool end() const { return ref_.end(); }

 private:
  CommTable::Ref ref_;
  bool null_;
};

}  // namespace hdt::client
