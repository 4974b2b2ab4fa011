// hdt_operation.cc: waits for libhdt.
#include "training/engine/hdt_operation.h"

namespace hdt::training {

Status status_of(hdtResult_t result) {
  if (result == HDT_SUCCESS) return Status::ok();
  return {static_cast<Code>(result), hdtGetLastError()};
}

HdtOperation::~HdtOperation() {
  if (request_ == nullptr) return;
  // The abort ends the operation, so the wait is short; it also frees the request.
  hdtCommAbort(comm_);
  hdtWait(&request_, -1);
}

// Every result of a wait without limit frees the request and sets it to null.
Status HdtOperation::wait() { return status_of(hdtWait(&request_, -1)); }

}  // namespace hdt::training
