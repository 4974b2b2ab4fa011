// pmix_library.cc: dlopen() of libpmix. A program that links libhdt thus runs on machines without PMIx.
#include "libclient/launch/pmix_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace hdt::client {
namespace {

constexpr char kLibrary[] = "libpmix.so.2";

// Looks one function up. False: the library does not have it.
template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Called once, by the first use of PMIx in the process.
Result<PmixLibrary> load() {
  // RTLD_LOCAL: an MPI in the same process may have loaded a libpmix of its own.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Code::kNoDaemon,
                  fmt::format("PMIx cannot be used: {} (Debian: libpmix2); or set HDT_RENDEZVOUS=host:port",
                              dlerror()));
  }
  PmixLibrary found{};
  // A library that lacks one of the functions cannot be used at all.
  if (!find(library, "PMIx_Init", found.init) || !find(library, "PMIx_Finalize", found.finalize) ||
      !find(library, "PMIx_Put", found.put) || !find(library, "PMIx_Commit", found.commit) ||
      !find(library, "PMIx_Get_nb", found.get_nb) ||
      !find(library, "PMIx_Error_string", found.error_string)) {
    return Status(Code::kNoDaemon, fmt::format("PMIx cannot be used: {} in {}", dlerror(), kLibrary));
  }
  return found;
}

}  // namespace

Result<const PmixLibrary*> pmix_library() {
  // On the heap: it is still there when exit handlers run.
  static const auto* library = new Result<PmixLibrary>(load());
  if (!library->is_ok()) return library->status();
  return &library->value();
}

}  // namespace hdt::client
