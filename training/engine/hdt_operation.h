// hdt_operation.h: requests and results of libhdt as the engine's operations and statuses.
#pragma once

#include "base/status.h"
#include "hdt/hdt.h"
#include "training/engine/messenger.h"

namespace hdt::training {

// The status of a call that has just returned on this thread, with libhdt's message. The message is the
// thread's latest one, so no other call may come in between.
Status status_of(hdtResult_t result);

// A request of `comm`. If it is destroyed without wait(), it aborts the communicator, so that neither
// this rank nor another waits for what will not come, and waits until the buffer is not in use any more.
class HdtOperation final : public Operation {
 public:
  HdtOperation(hdtComm_t comm, hdtRequest_t request) : comm_(comm), request_(request) {}
  ~HdtOperation() override;
  HdtOperation(const HdtOperation&) = delete;
  HdtOperation& operator=(const HdtOperation&) = delete;
  Status wait() override;

 private:
  hdtComm_t comm_;
  hdtRequest_t request_;  // null once wait() has returned
};

}  // namespace hdt::training
