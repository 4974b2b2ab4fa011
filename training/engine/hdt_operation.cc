// hdt_operation.cc: waiting for libhdt.
#include "training/engine/hdt_operation.h"

namespace hdt::training {

Status status_of(hdtResult_t result) {
  if (result == HDT_SUCCESS) return Status::ok();
  return {static_cast<Code>(result), hdtGetLastError()};
}

HdtOperation::~HdtOperation() {
  if (request_ == nullptr) return;
  hdtCommAbort(comm_);
  hdtWait(&request_, -1);
}

// Every result of an unlimited wait frees the request.
Status HdtOperation::wait() { return status_of(hdtWait(&request_, -1)); }

}  // namespace hdt::training
