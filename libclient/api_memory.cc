// The C interface: shared memory.
#include <map>
#include <mutex>

#include "base/shared_memory.h"
#include "hdt/hdt.h"
#include "libclient/last_error.h"

using hdt::Code;
using hdt::SharedMemory;
using hdt::Status;
using hdt::client::report;

namespace {

struct Allocations {
  std::mutex mutex;
  std::map<void*, SharedMemory> by_pointer;
};

Allocations& allocations() {
  static Allocations all;
  return all;
}

constexpr size_t kPage = 4096;

}  // namespace

hdtResult_t hdtMemAlloc(void** pointer, size_t bytes) {
  if (pointer == nullptr) return report(Status(Code::kInvalidArgument, "pointer is null"));
  *pointer = nullptr;
  if (bytes > SIZE_MAX / 2) return report(Status(Code::kInvalidArgument, "bytes is too large"));
  auto memory = SharedMemory::create("hdt-memory", (bytes / kPage + 1) * kPage);
  if (!memory.is_ok()) return report(memory.status());
  *pointer = memory.value().data();
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  all.by_pointer.emplace(*pointer, memory.take());
  return HDT_SUCCESS;
}

hdtResult_t hdtMemFree(void* pointer) {
  if (pointer == nullptr) return HDT_SUCCESS;
  Allocations& all = allocations();
  const std::lock_guard lock(all.mutex);
  if (all.by_pointer.erase(pointer) == 1) return HDT_SUCCESS;
  return report(Status(Code::kInvalidArgument, "hdtMemFree of memory that hdtMemAlloc did not give"));
}
