// handles.h: what the opaque pointers of hdt.h stand for, and how the calls of the C interface find it.
// The tables are process-wide and may be used from any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "libclient/api/handle_table.h"
#include "libclient/api/reductions.h"
#include "libclient/group/communicator.h"

// The body of an hdtComm_t. It lives from the call that made the communicator until hdtCommDestroy and
// the last call that overlaps it have returned. Requests under way keep the Communicator beyond that.
struct hdtComm {
  std::shared_ptr<hdt::client::Communicator> communicator;
  // Made by hdtRedOpCreatePreMulSum on this communicator.
  hdt::client::Reductions reductions;
  std::mutex error_mutex;
  // The text that hdtCommErrorMessage has returned. It is kept here because the caller holds a pointer
  // into it; guarded by error_mutex.
  std::string error_text;

  explicit hdtComm(std::shared_ptr<hdt::client::Communicator> made) : communicator(std::move(made)) {}
  // For HandleTable::make(), before any other thread knows the object: only the communicator is moved.
  hdtComm(hdtComm&& other) noexcept : communicator(std::move(other.communicator)) {}
};

namespace hdt::client {

// The operations that one call of the C interface has submitted: usually one; several, if the call is
// made of others (api_composed.cc).
struct Posting {
  std::vector<std::shared_ptr<Operation>> operations;
  // Memory that the operations use and that the caller did not supply, such as a scaled copy of the
  // sendbuf.
  std::shared_ptr<void> memory;
};

}  // namespace hdt::client

// The body of an hdtRequest_t: one call under way. It ends when hdtWait or hdtTest has completed it.
struct hdtRequest {
  std::shared_ptr<hdt::client::Communicator> communicator;
  hdt::client::Posting posting;

  // True if every operation is complete. Any thread; takes no lock.
  bool done() const {
    return std::all_of(posting.operations.begin(), posting.operations.end(),
                       [](const auto& operation) { return operation->done(); });
  }
};

namespace hdt::client {

using CommTable = HandleTable<hdtComm, 1>;
using RequestTable = HandleTable<hdtRequest, 2>;
// Never destroyed, as the tables have no destructor of their own: static destructors of a program may
// call HDT.
inline constinit CommTable communicators;
inline constinit RequestTable requests;

// Throws std::bad_alloc; the communicator then leaves its group as its last owner goes.
inline hdtComm_t make_handle(std::shared_ptr<Communicator> communicator) {
  return reinterpret_cast<hdtComm_t>(communicators.make(hdtComm(std::move(communicator))));
}

// The communicator of a handle for the duration of one call. The body stays for as long as this object
// does, even if another thread destroys the handle meanwhile. Members may be used only if valid().
class CommRef {
 public:
  explicit CommRef(hdtComm_t handle)
      : ref_(communicators.find(reinterpret_cast<uintptr_t>(handle))), null_(handle == nullptr) {}
  bool valid() const { return static_cast<bool>(ref_); }
  // Why it is not valid: kInvalidArgument with words for the user.
  Status status() const {
    if (valid()) return Status::ok();
    return {Code::kInvalidArgument,
            null_ ? "comm is null" : "comm is no communicator: it has been destroyed, or was never made"};
  }
  hdtComm* operator->() const { return ref_.operator->(); }
  // Ends the handle. True for the one caller that ended it.
  bool end() const { return ref_.end(); }

 private:
  CommTable::Ref ref_;
  bool null_;
};

}  // namespace hdt::client
