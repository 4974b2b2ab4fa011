// The C interface: shared memory.
#include "hdt/hdt.h"
#include "libclient/allocations.h"
#include "libclient/issue.h"

using hdt::Code;
using hdt::Status;
using hdt::client::Allocations;
using hdt::client::guarded;
using hdt::client::report;

hdtResult_t hdtMemAlloc(void** pointer, size_t bytes) {
  if (pointer == nullptr) return report(Status(Code::kInvalidArgument, "pointer is null"));
  *pointer = nullptr;
  return guarded([&] {
    const auto memory = Allocations::instance().allocate(bytes);
    if (!memory.is_ok()) return report(memory.status());
    *pointer = memory.value();
    return HDT_SUCCESS;
  });
}

hdtResult_t hdtMemFree(void* pointer) {
  if (pointer == nullptr) return HDT_SUCCESS;
  return report(Allocations::instance().free(pointer));
}
