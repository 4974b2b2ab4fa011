// loader.h: finds and loads the modules of backends (module.h). Each is loaded with RTLD_LOCAL, so that the
// symbols of one module's libraries do not meet those of another's. A module stays loaded until the process
// ends, because libraries for hardware do not survive being unloaded. The functions have no state and may be
// called on any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transports/module.h"
#include "transports/secure/secure.h"

namespace hdt::transport {

// A module that is loaded and checked.
struct Module {
  std::string name;     // of the backend
  std::string path;     // the file it was loaded from
  std::string library;  // ModuleDescription::library; "" if it has none
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options) = nullptr;
};

// The folders in which modules are searched, in this order; the first match is taken. They are those of
// HDT_TRANSPORT_PATH (separated by colons) if it is set. Otherwise they are F/hdt/transports and
// F/../lib/hdt/transports, where F is the folder of the library that holds this code and then that of the
// program; and at last hdt/transports below the library folder that HDT was configured for.
std::vector<std::string> module_folders();

// The names of the backends that the folders have files for, sorted. No file is loaded. "tcp" is built in and
// not among them.
std::vector<std::string> find_modules(const std::vector<std::string>& folders);

// Loads libhdt-transport-`name`.so from the first folder that has it. kNoBackend on failure; the message is
// one line with the file, or the folders, and the reason. Loading a module again is cheap.
Result<Module> load_module(const std::string& name, const std::vector<std::string>& folders);

// Makes the backend `name`, built in or of a module, with the options of [backend.NAME]. `security` protects
// tcp's connections, null: they are not protected; modules do not use it. kNoBackend if there is no such
// backend; otherwise the codes of the backend, such as kConfig for an unknown option.
Result<std::unique_ptr<Backend>> make_backend(
    const std::string& name, const BackendOptions& options, const std::vector<std::string>& folders,
    const std::shared_ptr<const secure::Security>& security = nullptr);

}  // namespace hdt::transport
