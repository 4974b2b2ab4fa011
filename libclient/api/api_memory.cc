// The C interface: shared memory.
#include "hdt/hdt.h"
#include "libclient/api/issue.h"
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
    const Status marked = hdt::mark_use();
    if (!marked.is_ok()) return report(marked);
    const auto memory = Allocations::instance().allocate(bytes);
    if (!memory.is_ok()) return report(memory.status());
    *pointer = memory.value();
    return HDT_SUCCESS;
  });
}

hdtResult_t hdtMemFree(void* pointer) {
  if (pointer == nullptr) return HDT_SUCCESS;
  if (hdt::forked()) return hdt::client::refuse_copy();
  return report(Allocations::instance().free(pointer));
}
