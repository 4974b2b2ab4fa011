// output_file.h: files that flags name: tried before long work, written after it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::tools {

// Success also where the flag was not given ("").
Status check_output(const char* flag, const std::string& path);
Status write_output(const char* flag, const std::string& path, std::string_view text);

}  // namespace hdt::tools
