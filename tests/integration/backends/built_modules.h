// built_modules.h: the modules of this build over which tests run: those that need no hardware, or those of
// HDT_TEST_MODULES_USED.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace hdt::testing {

inline std::vector<std::string> built_modules() {
  const char* wanted = std::getenv("HDT_TEST_MODULES_USED");
  std::istringstream words(wanted == nullptr ? "ofi ucx" : wanted);
  std::vector<std::string> built;
  for (std::string backend; words >> backend;) {
    const std::string file = std::string(HDT_MODULES) + "/libhdt-transport-" + backend + ".so";
    if (std::filesystem::exists(file)) built.push_back(backend);
  }
  return built;
}

}  // namespace hdt::testing
