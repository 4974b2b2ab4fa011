// secret_file.h: files with keys. Only their owner, root or this process's user, may have written them, and
// nobody else may read them.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace hdt {

// The text without white space at its end. kConfig, with the command that mends it: others than the owner can
// read or write the file (but root may let a group read its own), or it is not root's or this process's
// user's. `*missing` says that there is none.
Result<std::string> read_secret_file(const std::string& path, size_t most_bytes, bool* missing = nullptr);

// Makes the file with mode 0600, whole and on the disk or not at all. One that is there already stays as it
// is: an error.
Status make_secret_file(const std::string& path, const std::string& text);

// 32 random bytes as text, for make_secret_file().
Result<std::string> new_cluster_key();

}  // namespace hdt
