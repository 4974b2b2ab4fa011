// api_memory.cc: the C interface of shared memory. See hdt.h for what the calls promise; Allocations
// (libclient/daemon_client/allocations.h) does the work. No daemon is needed here: the first operation
// that uses an allocation shares it through the daemon.
#include "hdt/hdt.h"
#include "libclient/api/submit.h"
#include "libclient/daemon_client/allocations.h"

using hdt::Code;
using hdt::Status;
using hdt::client::Allocations;
using hdt::client::guarded;
using hdt::client::report;

hdtResult_t hdtMemAlloc(void** pointer, size_t bytes) {
  if (pointer == nullptr) return report(Status(Code::kInvalidArgument, "pointer is null"));
  *pointer = nullptr;
  if (hdt::forked()) return hdt::client::refuse_copy();
  return guarded([&] {
    // An allocation may be a program's first use of HDT. The mark comes first, so that a child that is
    // forked later knows that it is a copy.
    const Status marked = hdt::mark_use();
    if (!marked.is_ok()) return report(marked);
    const auto memory = Allocations::instance().allocate(bytes);
    if (!memory.is_ok()) return report(memory.status());
    *pointer = memory.value();
    return HDT_SUCCESS;
  });
}

// A forked child has the memory too, but the allocation is its parent's.
hdtResult_t hdtMemFree(void* pointer) {
  if (pointer == nullptr) return HDT_SUCCESS;
  if (hdt::forked()) return hdt::client::refuse_copy();
  return report(Allocations::instance().free(pointer));
}
