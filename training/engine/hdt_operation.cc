// hdt_operation.cc: waits for libhdt.
#include "training/engine/hdt_operation.h"

namespace hdt::training {

// The abort ends the operation, so the request's own wait, in its destructor, is short.
HdtOperation::~HdtOperation() {
  if (request_) hdtCommAbort(comm_);
}

// However it ends, the request is complete then, and the destructor has nothing to abort.
Status HdtOperation::wait() {
  return status_of([this] { request_.wait(); });
}

}  // namespace hdt::training
