// module.h: the interface of a backend's shared library, libhdt-transport-NAME.so. It exports one symbol, a
// function that describes the module. docs/backend-guide.md explains how to write one; transports/loader
// loads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport {

// The backend's own table in the configuration, [backend.NAME]: key to value, as written. A backend refuses
// unknown keys and invalid values with kConfig.
using BackendOptions = std::map<std::string, std::string>;

// Lives as long as the process, as modules are not unloaded. The loader reads `abi_version` before any other
// field, so it stays the first one in every version of the contract.
struct ModuleDescription {
  uint32_t abi_version;  // the kAbiVersion that the module was built with
  const char* name;      // "rdma", as in the file's name
  const char* library;   // what it drives, with the version at run time: "libfabric 1.17.0"; may be null
  // Makes a backend; each engine thread has one of its own. kConfig for options that it does not take.
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options);
};

}  // namespace hdt::transport

// The exported symbol. It may compute the texts when it is called; null means that the module has no backend
// to offer.
extern "C" __attribute__((visibility("default"))) const hdt::transport::ModuleDescription*
hdt_transport_module();
