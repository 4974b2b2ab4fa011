// small_file.h: reads a file that somebody else may have written, whole, up to a limit.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace hdt::training {

// The contents of a small file. kInvalidArgument: it is longer than `most` bytes, or no regular file.
// kSystem: it cannot be opened or read. The message has the path.
Result<std::string> read_small_file(const std::string& path, size_t most);

}  // namespace hdt::training
