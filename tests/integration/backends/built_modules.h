// built_modules.h: the modules of this build over which tests can run here, in the virtual machine of tools/rdma-vm with rdma.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace hdt::testing {

inline std::vector<std::string> built_modules() {
  std::vector<std::string> needed = {"ofi", "ucx"};
  if (std::getenv("RDMA_VM") != nullptr) needed.emplace_back("rdma");
  std::vector<std::string> built;
  for (const std::string& backend : needed) {
    const std::string file = std::string(HDT_MODULES) + "/libhdt-transport-" + backend + ".so";
    if (std::filesystem::exists(file)) built.push_back(backend);
  }
  return built;
}

}  // namespace hdt::testing
