// loader.cc: finds, loads and checks modules (see loader.h). The contents of a module are checked before they
// are used, the version of the contract first; a module that fails a check is unloaded again and refused with
// one line.
#include "transports/loader/loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/join.h"
#include "transports/tcp/options.h"

namespace hdt::transport {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "libhdt-transport-";
constexpr const char* kSuffix = ".so";
constexpr const char* kSymbol = "hdt_transport_module";
constexpr const char* kInFolder = "hdt/transports";

// The folders of the file that holds this code (libhdt.so or a program; dladdr() knows which file a function
// was loaded from), and of the program. Empty paths stand for what is not known.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&module_folders), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(fs::canonical(info.dli_fname, error).parent_path());
  }
  folders.push_back(fs::canonical("/proc/self/exe", error).parent_path());
  return folders;
}

void add_once(std::vector<std::string>& folders, const std::string& folder) {
  if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
}

// RTLD_NOW finds missing symbols here and not in the middle of a transfer.
Result<Module> open_module(const std::string& name, const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Code::kNoBackend, "backend " + name + ": cannot load " + path + ": " + ::dlerror());
  }
  const auto refuse = [&](const std::string& why) {
    ::dlclose(library);
    return Status(Code::kNoBackend, "backend " + name + ": " + path + " " + why);
  };
  void* const symbol = ::dlsym(library, kSymbol);
  if (symbol == nullptr) return refuse(std::string("is no backend module: it has no symbol ") + kSymbol);
  // abi_version is compared before any other field is read: another version may have other fields.
  const ModuleDescription* module = reinterpret_cast<decltype(&hdt_transport_module)>(symbol)();
  if (module == nullptr) return refuse("describes no backend");
  if (module->abi_version != kAbiVersion) {
    return refuse("was built for version " + std::to_string(module->abi_version) +
                  " of the backend interface; expected " + std::to_string(kAbiVersion));
  }
  if (module->name == nullptr || name != module->name) {
    return refuse("holds backend " + std::string(module->name == nullptr ? "?" : module->name) +
                  "; expected the one that the file's name says");
  }
  if (module->make == nullptr) return refuse("has no function that makes the backend");
  return Module{name, path, module->library == nullptr ? "" : module->library, module->make};
}

}  // namespace

std::vector<std::string> module_folders() {
  std::vector<std::string> folders;
  // As with LD_LIBRARY_PATH, the variable is ignored in programs that run with more rights than their caller.
  if (const char* chosen = ::secure_getenv("HDT_TRANSPORT_PATH"); chosen != nullptr) {
    std::string rest = chosen;
    while (!rest.empty()) {
      const size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) add_once(folders, rest.substr(0, colon));
      rest.erase(0, colon + 1);
    }
    return folders;
  }
  for (const fs::path& own : own_folders()) {
    if (own.empty()) continue;
    add_once(folders, (own / kInFolder).string());  // installed: own is lib, beside libhdt.so
    // Installed, for programs: own is bin, and lib is beside it.
    for (const char* lib : {HDT_INSTALL_LIBDIR, "lib"}) {
      add_once(folders, (own.parent_path() / lib / kInFolder).string());
    }
  }
  add_once(folders, (fs::path(HDT_INSTALL_FULL_LIBDIR) / kInFolder).string());
  return folders;
}

std::vector<std::string> find_modules(const std::vector<std::string>& folders) {
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code error;  // a folder that does not exist has no modules
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const std::string file = entry.path().filename().string();
      if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) continue;
      const size_t start = std::char_traits<char>::length(kPrefix);
      const size_t end = file.size() - std::char_traits<char>::length(kSuffix);
      if (end > start) names.insert(file.substr(start, end - start));
    }
  }
  return {names.begin(), names.end()};
}

Result<Module> load_module(const std::string& name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / (kPrefix + name + kSuffix);
    std::error_code error;
    if (fs::exists(path, error)) return open_module(name, path.string());
  }
  std::vector<std::string> available = find_modules(folders);
  available.insert(available.begin(), "tcp");
  return Status(Code::kNoBackend, "no backend is called \"" + name + "\"; available are " +
                                      join(available, ", ") + " (no " + kPrefix + name + kSuffix + " in " +
                                      join(folders, ", ") + ")");
}

Result<std::unique_ptr<Backend>> make_backend(const std::string& name, const BackendOptions& options,
                                              const std::vector<std::string>& folders,
                                              const std::shared_ptr<const secure::Security>& security) {
  // tcp is built in and needs no library, so a daemon always has a backend.
  if (name == "tcp") {
    Result<tcp::Options> parsed = tcp::parse_options(options);
    if (!parsed.is_ok()) return parsed.status();
    parsed.value().security = security;
    return tcp::make_backend(parsed.value());
  }
  Result<Module> module = load_module(name, folders);
  if (!module.is_ok()) return module.status();
  Result<std::unique_ptr<Backend>> backend = module.value().make(options);
  if (!backend.is_ok()) {
    return Status(backend.status().code(), "backend " + name + ": " + backend.status().message());
  }
  // The module is foreign code: null is no success.
  if (backend.value() == nullptr)
    return Status(Code::kNoBackend, "backend " + name + ": its module made none");
  return backend;
}

}  // namespace hdt::transport
