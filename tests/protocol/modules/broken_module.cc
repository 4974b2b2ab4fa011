// broken_module.cc: a module with the one thing wrong that the build defines: BROKEN_VERSION, BROKEN_NAME,
// BROKEN_NULL or BROKEN_MAKE.
#include "transports/module.h"

namespace {

using hdt::transport::kAbiVersion;

[[maybe_unused]] hdt::Result<std::unique_ptr<hdt::transport::Backend>> make(
    const hdt::transport::BackendOptions& /*options*/) {
  return std::unique_ptr<hdt::transport::Backend>();
}

const hdt::transport::ModuleDescription kModule = {
#if defined(BROKEN_VERSION)
    kAbiVersion + 1, "version", "", &make
#elif defined(BROKEN_NAME)
    kAbiVersion, "somethingelse", "", &make
#elif defined(BROKEN_MAKE)
    kAbiVersion, "make", "", nullptr
#else
    kAbiVersion, "null", "", &make
#endif
};

}  // namespace

const hdt::transport::ModuleDescription* hdt_transport_module() { return &kModule; }
