// output_files.h: the files that hdt-train writes must not be those that it reads, nor one another.
#pragma once

#include <string>

#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// "", or which two flags name the same file.
std::string files_in_each_others_way(const TrainFlags& flags);

}  // namespace hdt::tools
