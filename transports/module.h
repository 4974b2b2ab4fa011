// module.h: what a backend's shared library, libhdt-transport-NAME.so, shows: one symbol, which describes it.
// docs/backend-guide.md tells how to write one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport {

// Keys of the backend's own table in the configuration, [backend.NAME]: text as written. A backend refuses
// keys that it does not know, and values that it cannot take.
using BackendOptions = std::map<std::string, std::string>;

// Lives as long as the process: modules are not unloaded. The texts may be found out when the symbol is
// called.
struct ModuleDescription {
  uint32_t abi_version;  // kAbiVersion that it was built with; comes first in every version
  const char* name;      // "rdma", as in the file's name
  const char* library;   // what it drives, with the version found at run time: "libfabric 1.17.0"
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options);
};

}  // namespace hdt::transport

extern "C" __attribute__((visibility("default"))) const hdt::transport::ModuleDescription*
hdt_transport_module();
