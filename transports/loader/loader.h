// loader.h: finds backends' modules and loads them. Each is loaded with RTLD_LOCAL, so that what one library
// brings does not meet what another brings, and stays loaded until the process ends.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transports/module.h"
#include "transports/secure/secure.h"

namespace hdt::transport {

struct Module {
  std::string name;
  std::string path;
  std::string library;
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options) = nullptr;
};

// Folders where modules are looked for, first match wins: those of HDT_TRANSPORT_PATH (separated by colons),
// or, without it, lib/hdt/transports beside the folder of the library or program this is part of, and that of
// the prefix it was configured for.
std::vector<std::string> module_folders();

// Names of the backends that the folders have files for, sorted; "tcp", which is built in, is not among them.
std::vector<std::string> find_modules(const std::vector<std::string>& folders);

// Loads libhdt-transport-`name`.so from the first folder that has it. A failure is one line that says which
// file, or which folders, and what is wrong. Loading again what is loaded is cheap.
Result<Module> load_module(const std::string& name, const std::vector<std::string>& folders);

// The backend `name`: built in or of a module. `security`: of tcp's connections; modules have none.
Result<std::unique_ptr<Backend>> make_backend(
    const std::string& name, const BackendOptions& options, const std::vector<std::string>& folders,
    const std::shared_ptr<const secure::Security>& security = nullptr);

}  // namespace hdt::transport
