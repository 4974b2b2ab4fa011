// out_of_memory.cc: see out_of_memory.h.
#include "libclient/common/out_of_memory.h"

#include <cerrno>
#include <new>
#include <string>

#include "base/limits.h"

namespace hdt::client {

Status out_of_memory() noexcept {
  try {
    const std::string limit = limit_behind(ENOMEM);
    return {Code::kSystem,
            "process " + own_process() + " is out of memory" + (limit.empty() ? "" : ": " + limit)};
  } catch (const std::bad_alloc&) {
    return {Code::kSystem, "no memory"};  // fits a string without an allocation
  }
}

}  // namespace hdt::client
