// output_files.h: checks that the files which hdt-train writes are neither those that it reads nor the
// same as each other.
#pragma once

#include <string>

#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// "", or a message that names the two flags with the same file.
std::string files_in_each_others_way(const TrainFlags& flags);

}  // namespace hdt::tools
