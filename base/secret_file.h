// secret_file.h: files with keys. Only root or this process's user may have written such a file, and
// nobody else may be able to read it.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace hdt {

// The text of the file without white space at its end. The file must be a regular one, owned by root or
// by this process's user, with no permission for others; a file of root may be readable by its group. It
// must hold at most `most_bytes`. Anything else is kConfig, with the command that mends it. `missing`,
// if not null, is set to whether the file does not exist, so that a caller can make one.
Result<std::string> read_secret_file(const std::string& path, size_t most_bytes, bool* missing = nullptr);

// Makes the file with mode 0600. Afterwards it is whole and on the disk, or it does not exist. A file
// that is there already stays as it is (kInvalidUsage). kSystem: it cannot be written.
Status make_secret_file(const std::string& path, const std::string& text);

// A new cluster key for make_secret_file(): 32 random bytes as 64 hexadecimal digits and a line's end.
Result<std::string> new_cluster_key();

}  // namespace hdt
