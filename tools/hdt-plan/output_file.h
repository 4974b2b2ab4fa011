// output_file.h: files that flags name. They are tried before long work, and written after it. Errors
// begin with the flag. An empty path means that the flag was not given, and succeeds.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::tools {

// Whether the file can be written. Does not change a file that exists.
Status check_output(const char* flag, const std::string& path);
// Replaces the file as a whole: a reader sees the old contents or the new ones.
Status write_output(const char* flag, const std::string& path, std::string_view text);

}  // namespace hdt::tools
