// cgroup_files.h: the files of cgroups, which the limits of processors and of memory are read from.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace hdt {

// The whole text of a file; "" if it cannot be read.
inline std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Calls visit(folder) for the group at `path` ("/jobs/a") below the folder `root`, and for each of its
// ancestors up to the root: every one of them limits the process. Nothing for an empty path.
template <typename Visit>
void for_each_ancestor(const std::string& root, std::string path, Visit visit) {
  while (!path.empty()) {
    visit(root + (path == "/" ? "" : path));
    if (path == "/") return;
    const size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
}

}  // namespace hdt
