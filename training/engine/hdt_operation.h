// hdt_operation.h: what calls of hdt.hpp throw as statuses, and its requests as the engine's operations.
#pragma once

#include <utility>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "training/engine/messenger.h"

namespace hdt::training {

// Runs `body`, and returns Ok or the code and the message of what it throws. The values of Code are those
// of hdtResult_t.
template <typename Body>
Status status_of(Body body) {
  try {
    body();
    return Status::ok();
  } catch (const Error& error) {
    return {static_cast<Code>(error.code()), error.what()};
  }
}

// A request of `comm`. If it is destroyed without wait(), it aborts the communicator, so that neither
// this rank nor another waits for what will not come, and waits until the buffer is not in use any more.
class HdtOperation final : public Operation {
 public:
  HdtOperation(const Communicator& comm, Request request) : comm_(comm.get()), request_(std::move(request)) {}
  ~HdtOperation() override;
  HdtOperation(const HdtOperation&) = delete;
  HdtOperation& operator=(const HdtOperation&) = delete;
  Status wait() override;

 private:
  hdtComm_t comm_;  // a handle, as the communicator may have gone before
  Request request_;
};

}  // namespace hdt::training
