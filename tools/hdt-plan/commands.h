// commands.h: what the subcommands of hdt-plan do. Each prints its result on stdout.
#pragma once

#include <string>

#include "base/status.h"

namespace hdt::tools {

struct ValidateOptions {
  std::string folder;
  bool json = false;
};
Status validate_command(const ValidateOptions& options);

}  // namespace hdt::tools
